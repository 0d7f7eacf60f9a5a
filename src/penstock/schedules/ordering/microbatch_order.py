"""Micro-batches in their order: what a device does with some micro-batch or other, it does with the next in turn.

Which of equal micro-batches is taken first changes no time, but it changes numbers: gradients are added up, and batch
norm's buffers follow, in the order in which micro-batches come. So the i-th forward of a place is that of micro-batch
i, and so are its i-th recomputation, its i-th backward, and the i-th weight gradient of those whose backward is parted.

Nothing has to wait longer for that. When a place begins the i-th of its forwards, those of i micro-batches are done
wherever they come from, so also the first i; the same holds for what any other job needs, for messages, which keep
their order on every link, and for memory, which only counts jobs and messages. Cost: O(jobs log jobs).
"""

from dataclasses import replace

import numpy as np

from penstock.arrays import Ints
from penstock.program import Kind, Program

FIRST_SEEN = ((Kind.F,), (Kind.R,), (Kind.I, Kind.B))


def in_turn(program: Program) -> Program:
    """The same compute program with the micro-batches of every place in order."""
    place = program.device_of.astype(np.int64) * (int(program.stage.max(initial=0)) + 1) + program.stage
    microbatch = program.microbatch.copy()
    for kinds in FIRST_SEEN:
        rows = _by_place(program, place, kinds)
        begins = np.searchsorted(place[rows], place[rows])
        microbatch[rows] = np.arange(len(rows)) - begins
    microbatch[_by_place(program, place, (Kind.W,))] = microbatch[_by_place(program, place, (Kind.I,))]
    microbatch.setflags(write=False)
    return replace(program, microbatch=microbatch)


def _by_place(program: Program, place: Ints, kinds: tuple[Kind, ...]) -> Ints:
    """Where actions of these kinds stand, place after place, in the order of each."""
    rows = np.flatnonzero(np.isin(program.kind, kinds))
    return rows[np.argsort(place[rows], kind="stable")]
