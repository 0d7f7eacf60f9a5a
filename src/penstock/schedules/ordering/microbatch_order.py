"""Micro-batches in order: every replica runs its passes of each kind in the order of the micro-batches.

Which of equal micro-batches comes first does not change times, but it changes numbers: gradients accumulate, and batch
norm's buffers follow, in the order of the micro-batches. So the i-th forward of a replica is that of micro-batch i, and
so are its i-th recompute, its i-th backward, and the i-th weight gradient of a split backward.

No pass waits longer for that. When a replica starts its i-th forward, the forwards of i micro-batches are done
upstream, so also those of the first i. The same holds for all other dependencies, for messages, which keep their order
on every link, and for memory, which only counts passes and messages. Cost: O(jobs log jobs).
"""

from dataclasses import replace

import numpy as np

from penstock.arrays import Ints
from penstock.program import Kind, Program

FIRST_SEEN = ((Kind.F,), (Kind.R,), (Kind.I, Kind.B))


def in_turn(program: Program) -> Program:
    """The same compute program with the micro-batches of every replica in order."""
    replica = program.device_of.astype(np.int64) * (int(program.stage.max(initial=0)) + 1) + program.stage
    microbatch = program.microbatch.copy()
    for kinds in FIRST_SEEN:
        rows = _by_replica(program, replica, kinds)
        begins = np.searchsorted(replica[rows], replica[rows])
        microbatch[rows] = np.arange(len(rows)) - begins
    microbatch[_by_replica(program, replica, (Kind.W,))] = microbatch[_by_replica(program, replica, (Kind.I,))]
    microbatch.setflags(write=False)
    return replace(program, microbatch=microbatch)


def _by_replica(program: Program, replica: Ints, kinds: tuple[Kind, ...]) -> Ints:
    """The indices of actions of these kinds, replica after replica, in the order of each."""
    rows = program.rows_of(*kinds)
    return rows[np.argsort(replica[rows], kind="stable")]
