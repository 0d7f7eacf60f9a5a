"""Where the numbers of a measured cluster come from, and what may be wrong with them."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

Fraction = Annotated[float, msgspec.Meta(ge=0)]

MAX_AGE = timedelta(days=31)


class Probed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When and how a cluster was measured."""

    date: datetime
    backend: str
    """Of torch.distributed: gloo or nccl."""
    rounds: Annotated[int, msgspec.Meta(ge=0)] = 0
    residuals: tuple[tuple[Fraction, ...], ...] = ()
    """Of each link, by device that sends (row) and receives: how far measured times are from the fitted ones, as a
    fraction (root mean square). Empty if not known."""

    def __post_init__(self) -> None:
        if self.date.tzinfo is None:
            raise ValueError("the date of a probe needs its time zone")
        if any(len(row) != len(self.residuals) for row in self.residuals):
            raise ValueError("residuals must have a row and a column for each device")
        if not all(value >= 0 for row in self.residuals for value in row):
            raise ValueError("residuals must not be negative")

    def of_part(self, places: Iterable[int]) -> "Probed":
        """The same for some of the devices."""
        kept = list(places)
        rows = tuple(tuple(self.residuals[a][b] for b in kept) for a in kept) if self.residuals else ()
        return msgspec.structs.replace(self, residuals=rows)
