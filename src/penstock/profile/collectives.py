"""Seconds of all-reduces, from a table of measurements or from the bandwidth between devices."""

import csv
import io
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

import msgspec

from penstock.errors import InputError

AllReduce = Callable[[int, float], float]
"""Seconds of an all-reduce over a number of devices, of a number of bytes."""

MAX_DEVICES = 2**20
_COLUMNS = ("num_gpus", "bytes", "seconds")
BASE_S = 30e-6
STEP_S = 8e-6
BANDWIDTH_FRACTION = 0.72
"""An all-reduce without a table: the launch, a latency for every further device, and the part of the bandwidth between
devices that large all-reduces attain. Round figures of nodes with NVLink."""


class MeasuredAllReduce(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Measured seconds of all-reduces over some number of devices, by size.

    Attributes:
        num_devices: How many devices took part.
        num_bytes: Sizes, ascending.
        seconds: Seconds of each.

    Raises:
        ValueError: The sizes do not ascend, or a value is not positive and finite.

    Example:
        >>> MeasuredAllReduce(num_devices=2, num_bytes=(1e6, 2e6), seconds=(1e-4, 1.5e-4)).at(1.5e6)
        0.000125
    """

    num_devices: int
    num_bytes: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 2 <= self.num_devices <= MAX_DEVICES:
            raise ValueError(f"an all-reduce takes 2 to {MAX_DEVICES:,} devices, not {self.num_devices}")
        if len(self.num_bytes) < 2 or len(self.num_bytes) != len(self.seconds):
            raise ValueError("an all-reduce needs as many seconds as sizes, and at least two of them")
        if not all(math.isfinite(value) and value > 0 for value in (*self.num_bytes, *self.seconds)):
            raise ValueError("sizes and seconds of all-reduces must be positive and finite")
        if any(later <= earlier for earlier, later in zip(self.num_bytes, self.num_bytes[1:], strict=False)):
            raise ValueError("the sizes of all-reduces must ascend")

    def at(self, num_bytes: float) -> float:
        """Return the seconds for a size: what was measured, or a line between the two measured neighbours.

        Smaller sizes take as long as the smallest; larger ones grow at the rate of the last two, but never shrink.
        """
        sizes, seconds = self.num_bytes, self.seconds
        if num_bytes <= sizes[0]:
            return seconds[0]
        right = min(bisect_left(sizes, num_bytes), len(sizes) - 1)
        if sizes[right] == num_bytes:
            return seconds[right]
        left = right - 1
        slope = (seconds[right] - seconds[left]) / (sizes[right] - sizes[left])
        if num_bytes > sizes[right]:
            return seconds[right] + max(slope, 0.0) * (num_bytes - sizes[right])
        return seconds[left] + slope * (num_bytes - sizes[left])

    @property
    def line(self) -> tuple[float, float]:
        """A constant and seconds per byte, through the smallest and the largest size: for planners with linear prices.

        >>> MeasuredAllReduce(num_devices=2, num_bytes=(1e6, 2e6, 3e6), seconds=(1e-4, 1.7e-4, 2e-4)).line
        (5e-05, 5e-11)
        """
        sizes, seconds = self.num_bytes, self.seconds
        slope = min(max(seconds[-1] - seconds[0], 0.0) / (sizes[-1] - sizes[0]), seconds[0] / sizes[0])
        return seconds[0] - slope * sizes[0], slope

    def fastest(self, most_bytes: float) -> float:
        """The largest number of bytes per second of an all-reduce of at most so many bytes."""
        sizes = {size for size in (*self.num_bytes, most_bytes) if size <= most_bytes}
        # Between two measured sizes, bytes per second rise or fall all the way.
        return max(size / self.at(size) for size in sizes)


def read_all_reduces(text: str, *, where: str) -> tuple[MeasuredAllReduce, ...]:
    r"""Read a table of all-reduces: CSV with the columns num_gpus, bytes and seconds.

    Raises:
        InputError: A column is missing, or a value is invalid.

    Example:
        >>> [table] = read_all_reduces("num_gpus,bytes,seconds\n2,1000,1e-5\n2,2000,2e-5\n", where="table.csv")
        >>> table.num_devices
        2
    """
    reader = csv.DictReader(io.StringIO(text))
    if not set(_COLUMNS) <= set(reader.fieldnames or ()):
        hint = f"The first line must be {','.join(_COLUMNS)}."
        raise InputError("a table of all-reduces needs other columns", where=where, hint=hint)
    entries: dict[int, list[tuple[float, float]]] = {}
    for row in reader:
        try:
            devices, size, seconds = int(row["num_gpus"]), float(row["bytes"]), float(row["seconds"])
        except (TypeError, ValueError):
            raise InputError(f"not numbers: {row!r:.80}", where=f"{where}:{reader.line_num}") from None
        entries.setdefault(devices, []).append((size, seconds))
    try:
        return tuple(
            MeasuredAllReduce(
                num_devices=devices,
                num_bytes=tuple(size for size, _ in sorted(found)),
                seconds=tuple(seconds for _, seconds in sorted(found)),
            )
            for devices, found in sorted(entries.items())
        )
    except ValueError as error:
        raise InputError(str(error), where=where) from None


def measured_all_reduce(tables: Sequence[MeasuredAllReduce]) -> AllReduce:
    """Return the seconds of all-reduces by measurements.

    Raises:
        InputError: On a call for a number of devices that was not measured.
    """
    by_devices = {table.num_devices: table for table in tables}

    def all_reduce_s(num_devices: int, num_bytes: float) -> float:
        if num_devices not in by_devices:
            known = ", ".join(map(str, by_devices))
            raise InputError(f"no all-reduce over {num_devices} devices was measured", hint=f"Measured: {known}.")
        return by_devices[num_devices].at(num_bytes)

    return all_reduce_s


def estimated_all_reduce(bandwidth: float) -> AllReduce:
    """Return the seconds of all-reduces for a bandwidth between devices, in bytes per second and direction.

    >>> estimated_all_reduce(300e9)(8, 1e9) > estimated_all_reduce(300e9)(2, 1e9)
    True
    """

    def all_reduce_s(num_devices: int, num_bytes: float) -> float:
        moved = 2 * (num_devices - 1) / num_devices * num_bytes
        return BASE_S + STEP_S * (num_devices - 1) + moved / (bandwidth * BANDWIDTH_FRACTION)

    return all_reduce_s
