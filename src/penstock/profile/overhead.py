"""`Overhead`: what the runtime adds to every action and message on one kind of device."""

import math

import msgspec

from penstock.profile.consistency import make_floats
from penstock.profile.limits import Ratio, Seconds


class Overhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Time that the runtime spends on a device besides the layers themselves.

    It is measured on CPUs, where the runtime and the layers compete for the same cores. It matters for small layers
    and for large messages.

    Attributes:
        kind: Device kind.
        job_s: Seconds for every compute action (F, I, W, B, R).
        message_s: Seconds for every message sent and for every message received.
        byte_s: Seconds for every byte sent.
        split_ratio: Extra time of I and W over a fused backward, as a fraction of the fused backward.
        remote_ratio: Extra time of a forward and its remote backward, as a fraction of the time of both on one device,
            without messages.

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

    def __post_init__(self) -> None:
        names = ("job_s", "message_s", "byte_s", "split_ratio", "remote_ratio")
        make_floats(self, names)
        if not all(math.isfinite(getattr(self, name)) for name in names):
            raise ValueError("overheads must be finite")
