"""The options of elastic training, which concern the supervisor and not the ranks."""

from dataclasses import dataclass

from penstock.errors import InputError

DEFAULT_MAX_RESTARTS = 10
DEFAULT_RETURN_AFTER_S = 30.0


@dataclass(frozen=True)
class ElasticOptions:
    """The options of `penstock train --elastic`."""

    elastic: bool = False
    max_restarts: int | None = None
    """How many losses end in a restart. One more ends the run. None: 10."""
    min_devices: int | None = None
    """With fewer devices the run ends. None: 1."""
    peer_copies: int | None = None
    """Steps between two copies of the state in memory. None: 1."""
    return_after: float | None = None
    """Seconds after a loss, until its device is checked and used again. None: 30."""

    def check(self, num_devices: int, nnodes: int) -> None:
        """Check that the options fit each other and the plan.

        Args:
            num_devices: The number of devices of the plan.
            nnodes: The number of hosts.

        Raises:
            InputError: They do not.
        """
        for name in ("max_restarts", "min_devices", "peer_copies", "return_after"):
            if getattr(self, name) is not None and not self.elastic:
                raise InputError(f"--{name.replace('_', '-')} requires --elastic", hint="Add --elastic.")
        if not self.elastic:
            return
        if nnodes > 1:
            raise InputError(
                "--elastic requires --nnodes 1: elastic training on several hosts is not supported yet",
                hint="Leave --elastic out, and start the same command again after a loss, with --checkpoint.",
            )
        if self.minimum > num_devices:
            raise InputError(
                f"--min-devices ({self.minimum}) is more than the plan's number of devices ({num_devices})",
                where="--min-devices",
                hint=f"Use at most {num_devices}.",
            )

    @property
    def restarts(self) -> int:
        """The most restarts after losses."""
        return DEFAULT_MAX_RESTARTS if self.max_restarts is None else self.max_restarts

    @property
    def minimum(self) -> int:
        """The fewest devices to train on."""
        return 1 if self.min_devices is None else self.min_devices

    @property
    def copy_every(self) -> int:
        """Steps between two copies."""
        return 1 if self.peer_copies is None else self.peer_copies

    @property
    def check_after_s(self) -> float:
        """Seconds until a lost device is checked."""
        return DEFAULT_RETURN_AFTER_S if self.return_after is None else self.return_after
