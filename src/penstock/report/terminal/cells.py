"""A timeline as rows of character cells, one row a device: what fills each slot of time. No colours here.

The iteration is cut into as many equal slots as there are columns. Two rules decide about a cell:

1. *Busy or idle.* From the left edge up to any column, as many cells are drawn busy as the device has worked slots of
   time, rounded. So the picture has the bubble that the numbers have, at any width, and even where everything is
   smaller than a cell. A busy cell always has some work in it, and an idle one some idle time.
2. *Busy with what.* The kind of work with the largest part of the slot wins, and of that kind the action with the
   largest part. At equal parts the kind that comes first in `Kind` wins, and the action that comes first in time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.errors import InputError
from penstock.program import NONE, Kind
from penstock.report.analysis import check_showable
from penstock.timeline import Timeline

MAX_MICRO_BATCH_SIZE = 64
"""Of more devices than this, as many are chosen, evenly."""

MAX_COLUMNS = 100_000

_NUM_KINDS = Kind.STEP + 1
# Parts of a cell that differ by less are equal, so that rounding in sums does not decide what is drawn.
_TINY = 1e-9


class Cell(NamedTuple):
    """One slot of time of one device: its work (None: idle) and, where it fits, a character of the label."""

    kind: Kind | None
    text: str = ""


class Block(msgspec.Struct, frozen=True):
    """Cells side by side that show the same action, or idle time (kind None)."""

    kind: Kind | None
    num_cells: int
    action: int = NONE
    """The action's place in the program."""
    microbatch: int = NONE
    shade: int = 0
    """0 for the first stage of a device in model order, 1 for the next, then 0 again, and so on."""

    @property
    def label(self) -> str:
        """The number of the micro-batch, if it fits."""
        text = "" if self.microbatch == NONE else str(self.microbatch)
        return text if len(text) <= self.num_cells else ""


class Row(msgspec.Struct, frozen=True):
    """One device, from the start to the end of the iteration."""

    device: str
    blocks: tuple[Block, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The row cell by cell, with labels at the left of their blocks."""
        return tuple(
            Cell(block.kind, block.label[place : place + 1])
            for block in self.blocks
            for place in range(block.num_cells)
        )


class Drawing(msgspec.Struct, frozen=True):
    """The rows, and how many other used devices there would have been."""

    rows: tuple[Row, ...]
    num_left_out: int = 0


def draw(timeline: Timeline, width: int, *, devices: Sequence[str] | None = None) -> Drawing:
    """The timeline on `width` columns: the devices named, in that order, or those of `choose_devices`."""
    if not 1 <= width <= MAX_COLUMNS:
        raise InputError(f"a drawing has 1 to {MAX_COLUMNS:,} columns, not {width:,}")
    check_showable(timeline)
    program = timeline.program
    names, num_left_out = choose_devices(timeline) if devices is None else (tuple(devices), 0)
    place_of = {name: place for place, name in enumerate(program.devices)}
    rows = []
    for name in names:
        if name not in place_of:
            raise InputError(
                f"the timeline has no device {name!r}", hint=f"It has: {', '.join(map(repr, program.devices[:20]))}."
            )
        span = slice(int(program.offsets[place_of[name]]), int(program.offsets[place_of[name] + 1]))
        actions = np.flatnonzero(timeline.is_compute[span]) + span.start
        rows.append(Row(name, _blocks(timeline, actions, _shown_actions(timeline, actions, width))))
    return Drawing(tuple(rows), num_left_out)


def choose_devices(timeline: Timeline) -> tuple[tuple[str, ...], int]:
    """The devices that compute, evenly thinned out to 64 if there are more; and how many are left out."""
    used = np.unique(timeline.program.device_of[timeline.is_compute])
    size = min(len(used), MAX_MICRO_BATCH_SIZE)
    chosen = used[np.linspace(0, len(used) - 1, size).round().astype(np.int64)]
    return tuple(timeline.program.devices[place] for place in chosen.tolist()), len(used) - size


def _shown_actions(timeline: Timeline, actions: Ints, width: int) -> Ints:
    """For each column the action to show, or NONE for idle."""
    shown = np.full(width, NONE, dtype=np.int64)
    if timeline.iteration_s == 0 or not len(actions):
        return shown
    start = np.minimum(timeline.start_s[actions] / timeline.iteration_s * width, width)
    end = np.minimum(timeline.end_s[actions] / timeline.iteration_s * width, width)
    # A device does one thing at a time. Should a measured one say otherwise, what came first in its order goes first.
    taken = np.maximum.accumulate(end)
    start[1:] = np.maximum(start[1:], taken[:-1])
    owner, column, part = _parts(start, end)

    kind = timeline.program.kind[actions].astype(np.int64)
    by_kind = np.bincount(column * _NUM_KINDS + kind[owner], part, minlength=width * _NUM_KINDS)
    by_kind = by_kind.reshape(width, _NUM_KINDS)
    drawn_so_far = np.floor(np.cumsum(by_kind.sum(axis=1)) + 0.5 + _TINY)
    busy = np.diff(drawn_so_far, prepend=0.0) > 0

    main = np.argmax(np.round(by_kind / _TINY), axis=1)
    fits = np.flatnonzero(kind[owner] == main[column])
    order = fits[np.lexsort((-owner[fits], np.round(part[fits] / _TINY), column[fits]))]
    # Sorted like this, the last entry of a column is its largest; later writes go over earlier ones.
    shown[column[order]] = actions[owner[order]]
    shown[~busy] = NONE
    return shown


def _parts(start: Floats, end: Floats) -> tuple[Ints, Ints, Floats]:
    """Cut stretches at the edges of columns: for each piece its stretch, its column, and how much of it is filled."""
    some = np.flatnonzero(end > start)
    first = np.floor(start[some]).astype(np.int64)
    count = np.ceil(end[some]).astype(np.int64) - first
    owner = np.repeat(some, count)
    step = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    column = np.repeat(first, count) + step
    part = np.minimum(end[owner], column + 1) - np.maximum(start[owner], column)
    return owner, column, part


def _blocks(timeline: Timeline, actions: Ints, shown: Ints) -> tuple[Block, ...]:
    program = timeline.program
    rank = {stage: place for place, stage in enumerate(np.unique(program.stage[actions]).tolist())}
    begins = np.flatnonzero(np.diff(shown, prepend=NONE - 1))
    blocks = []
    for action, size in zip(shown[begins].tolist(), np.diff(begins, append=len(shown)).tolist(), strict=True):
        if action == NONE:
            blocks.append(Block(None, size))
            continue
        shade = rank[int(program.stage[action])] % 2
        blocks.append(Block(Kind(int(program.kind[action])), size, action, int(program.microbatch[action]), shade))
    return tuple(blocks)
