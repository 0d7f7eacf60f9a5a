"""A timeline as rows of character cells without colours, one row per device.

The iteration is cut into as many equal time slots as there are columns. Two rules decide about a cell:

1. *Busy or idle.* From the left edge up to any column, the number of busy cells is the device's busy time in slots,
   rounded. So the drawing has the same bubble as the numbers at any width, even where every action is smaller than a
   cell. A busy cell contains some busy time, and an idle cell contains some idle time.
2. *Kind of action.* The kind with the largest part of the slot wins, and of that kind the action with the largest part.
   Ties go to the kind that comes first in `Kind` and to the action that starts first.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.errors import InputError
from penstock.program import NONE, Kind
from penstock.report.analysis import validate_timeline
from penstock.timeline import Timeline

MAX_ROWS = 64
"""With more devices, this many evenly spaced ones are drawn."""

MAX_COLUMNS = 100_000

_NUM_KINDS = Kind.STEP + 1
# Parts of a cell that differ by less are equal, so that rounding errors do not decide about a cell.
_TINY = 1e-9


class Cell(NamedTuple):
    """One time slot of one device: the kind of action (None: idle) and a character of the label where it fits."""

    kind: Kind | None
    text: str = ""


class Block(msgspec.Struct, frozen=True):
    """Adjacent cells of the same action, or of idle time (kind None)."""

    kind: Kind | None
    num_cells: int
    action: int = NONE
    """The action's index in the program."""
    microbatch: int = NONE
    shade: int = 0
    """0 and 1 in turn for the stages of a device, in model order."""

    @property
    def label(self) -> str:
        """The number of the micro-batch; empty where it does not fit."""
        text = "" if self.microbatch == NONE else str(self.microbatch)
        return text if len(text) <= self.num_cells else ""


class Row(msgspec.Struct, frozen=True):
    """One device, from the start to the end of the iteration."""

    device: str
    blocks: tuple[Block, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of the row, with labels at the left of their blocks."""
        return tuple(
            Cell(block.kind, block.label[index : index + 1])
            for block in self.blocks
            for index in range(block.num_cells)
        )


class Drawing(msgspec.Struct, frozen=True):
    """The rows, and the number of used devices that are left out."""

    rows: tuple[Row, ...]
    num_left_out: int = 0


def draw(timeline: Timeline, width: int, *, devices: Sequence[str] | None = None) -> Drawing:
    """Draw a timeline on `width` columns: the named devices in that order, or those of `choose_devices`."""
    if not 1 <= width <= MAX_COLUMNS:
        raise InputError(f"width of a timeline ({width:,} columns) must be between 1 and {MAX_COLUMNS:,} columns")
    validate_timeline(timeline)
    program = timeline.program
    names, num_left_out = choose_devices(timeline) if devices is None else (tuple(devices), 0)
    index_of = {name: index for index, name in enumerate(program.devices)}
    rows = []
    for name in names:
        if name not in index_of:
            raise InputError(
                f"the timeline has no device {name!r}",
                hint=f"Devices of the timeline: {', '.join(map(repr, program.devices[:20]))}.",
            )
        span = slice(int(program.offsets[index_of[name]]), int(program.offsets[index_of[name] + 1]))
        actions = np.flatnonzero(timeline.is_compute[span]) + span.start
        rows.append(Row(name, _blocks(timeline, actions, _shown_actions(timeline, actions, width))))
    return Drawing(tuple(rows), num_left_out)


def choose_devices(timeline: Timeline) -> tuple[tuple[str, ...], int]:
    """The devices that compute, at most 64 evenly spaced ones; and the number of those left out."""
    used = np.unique(timeline.program.device_of[timeline.is_compute])
    size = min(len(used), MAX_ROWS)
    chosen = used[np.linspace(0, len(used) - 1, size).round().astype(np.int64)]
    return tuple(timeline.program.devices[device] for device in chosen.tolist()), len(used) - size


def _shown_actions(timeline: Timeline, actions: Ints, width: int) -> Ints:
    """For each column the action to draw, or NONE for idle."""
    shown = np.full(width, NONE, dtype=np.int64)
    if timeline.iteration_s == 0 or not len(actions):
        return shown
    start = np.minimum(timeline.start_s[actions] / timeline.iteration_s * width, width)
    end = np.minimum(timeline.end_s[actions] / timeline.iteration_s * width, width)
    # Actions of a device do not overlap. If measured ones do, the earlier one in program order is drawn.
    occupied = np.maximum.accumulate(end)
    start[1:] = np.maximum(start[1:], occupied[:-1])
    owner, column, part = _parts(start, end)

    kind = timeline.program.kind[actions].astype(np.int64)
    by_kind = np.bincount(column * _NUM_KINDS + kind[owner], part, minlength=width * _NUM_KINDS)
    by_kind = by_kind.reshape(width, _NUM_KINDS)
    drawn_so_far = np.floor(np.cumsum(by_kind.sum(axis=1)) + 0.5 + _TINY)
    busy = np.diff(drawn_so_far, prepend=0.0) > 0

    main = np.argmax(np.round(by_kind / _TINY), axis=1)
    fits = np.flatnonzero(kind[owner] == main[column])
    order = fits[np.lexsort((-owner[fits], np.round(part[fits] / _TINY), column[fits]))]
    # In this order the last entry of a column is its largest, and later writes replace earlier ones.
    shown[column[order]] = actions[owner[order]]
    shown[~busy] = NONE
    return shown


def _parts(start: Floats, end: Floats) -> tuple[Ints, Ints, Floats]:
    """Cut intervals at the edges of columns: for each piece its interval, its column, and the part that it fills."""
    positive = np.flatnonzero(end > start)
    first = np.floor(start[positive]).astype(np.int64)
    count = np.ceil(end[positive]).astype(np.int64) - first
    owner = np.repeat(positive, count)
    step = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    column = np.repeat(first, count) + step
    part = np.minimum(end[owner], column + 1) - np.maximum(start[owner], column)
    return owner, column, part


def _blocks(timeline: Timeline, actions: Ints, shown: Ints) -> tuple[Block, ...]:
    program = timeline.program
    rank = {stage: index for index, stage in enumerate(np.unique(program.stage[actions]).tolist())}
    begins = np.flatnonzero(np.diff(shown, prepend=NONE - 1))
    blocks = []
    for action, size in zip(shown[begins].tolist(), np.diff(begins, append=len(shown)).tolist(), strict=True):
        if action == NONE:
            blocks.append(Block(None, size))
            continue
        shade = rank[int(program.stage[action])] % 2
        blocks.append(Block(Kind(int(program.kind[action])), size, action, int(program.microbatch[action]), shade))
    return tuple(blocks)
