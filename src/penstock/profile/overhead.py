"""`Overhead`: what the runtime adds to every action and message on one kind of device."""

import math

import msgspec

from penstock.profile.consistency import make_floats
from penstock.profile.limits import Ratio, Seconds

LATER = ("receive_message_s", "receive_byte_s", "microbatch_s", "iteration_s")


class Overhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Time that the runtime spends on a device besides the layers themselves.

    It is measured on CPUs, where the runtime and the layers compete for the same cores. It matters for small layers
    and for large messages.

    Attributes:
        kind: Device kind.
        job_s: Seconds for every compute action (F, I, W, B, R).
        message_s: Seconds for every message sent, and for every message received if `receive_message_s` is unset.
        byte_s: Seconds for every byte sent.
        split_ratio: Extra time of I and W over a fused backward, as a fraction of the fused backward.
        remote_ratio: Extra time of a forward and its remote backward, as a fraction of the time of both on one device,
            without messages.
        receive_message_s: Seconds for every message received.
        receive_byte_s: Seconds for every byte received.
        microbatch_s: Seconds for every micro-batch, before the first forward of the device.
        iteration_s: Seconds for every iteration, in the first optimizer step of the device.

    The last four are left out of files, and of digests, where they are unset.

    Example:
        >>> Overhead(kind="cpu-1-thread", job_s=2e-4, message_s=1e-4, byte_s=3e-10).split_ratio
        0.0
    """

    kind: str
    job_s: Seconds
    message_s: Seconds
    byte_s: Seconds
    split_ratio: Ratio = 0.0
    remote_ratio: Ratio = 0.0
    receive_message_s: Seconds | msgspec.UnsetType = msgspec.UNSET
    receive_byte_s: Seconds | msgspec.UnsetType = msgspec.UNSET
    microbatch_s: Seconds | msgspec.UnsetType = msgspec.UNSET
    iteration_s: Seconds | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        names = ["job_s", "message_s", "byte_s", "split_ratio", "remote_ratio"]
        names += [name for name in LATER if getattr(self, name) is not msgspec.UNSET]
        make_floats(self, tuple(names))
        if not all(math.isfinite(getattr(self, name)) for name in names):
            raise ValueError("overheads must be finite")

    @property
    def received_message_s(self) -> float:
        """Seconds for every message received."""
        return self.message_s if self.receive_message_s is msgspec.UNSET else self.receive_message_s

    @property
    def received_byte_s(self) -> float:
        """Seconds for every byte received."""
        return 0.0 if self.receive_byte_s is msgspec.UNSET else self.receive_byte_s

    @property
    def each_microbatch_s(self) -> float:
        """Seconds for every micro-batch."""
        return 0.0 if self.microbatch_s is msgspec.UNSET else self.microbatch_s

    @property
    def each_iteration_s(self) -> float:
        """Seconds for every iteration."""
        return 0.0 if self.iteration_s is msgspec.UNSET else self.iteration_s

    def at_speed(self, speed: float) -> "Overhead":
        """The overheads of a device of this kind with another speed."""
        names = ("job_s", "message_s", "byte_s", *(name for name in LATER if getattr(self, name) is not msgspec.UNSET))
        return msgspec.structs.replace(self, **{name: getattr(self, name) / speed for name in names})
