"""Provenance of a measured cluster: when and how, and how well the fit matches the measurements."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

Fraction = Annotated[float, msgspec.Meta(ge=0)]

MAX_AGE = timedelta(days=31)


class ProbeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When and how a cluster was measured.

    Attributes:
        date: Time of the probe, with time zone.
        backend: Backend of torch.distributed: "gloo" or "nccl".
        rounds: Rounds of measurements.
        residuals: For each link from sender (row) to receiver (column), the root mean square of the relative
            difference between measured and fitted times. Empty if unknown.

    Raises:
        ValueError: The date has no time zone, or the residuals are not a square matrix of nonnegative numbers.
    """

    date: datetime
    backend: str
    rounds: Annotated[int, msgspec.Meta(ge=0)] = 0
    residuals: tuple[tuple[Fraction, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.date.tzinfo is None:
            raise ValueError("the date of a probe must have a time zone")
        if any(len(row) != len(self.residuals) for row in self.residuals):
            raise ValueError("residuals must have a row and a column for each device")
        if not all(value >= 0 for row in self.residuals for value in row):
            raise ValueError("residuals must not be negative")

    def subset(self, devices: Iterable[int]) -> "ProbeRecord":
        """Return the record for some of the devices, by position."""
        kept = list(devices)
        rows = tuple(tuple(self.residuals[a][b] for b in kept) for a in kept) if self.residuals else ()
        return msgspec.structs.replace(self, residuals=rows)
