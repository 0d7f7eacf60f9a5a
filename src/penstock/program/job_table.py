"""The replica of every action, and the index of every pass in a program."""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.program.actions import NONE, Kind
from penstock.program.placement import Replicas
from penstock.program.types import Program

FORWARD_SIDE = (Kind.F, Kind.SEND_F, Kind.RECV_F, Kind.SEND_S, Kind.RECV_P)
"""Kinds that run on the forward's device; the others run on the backward's device."""

_IS_FORWARD = np.zeros(1 << 8, dtype=bool)
_IS_FORWARD[list(FORWARD_SIDE)] = True
"""Over all values of a kind's type."""

FORWARD, RECOMPUTE, BACKWARD, WEIGHTS = range(4)
"""The passes of a replica and micro-batch. A fused backward is both BACKWARD and WEIGHTS."""
SPLIT_KINDS = (Kind.F, Kind.R, Kind.I, Kind.W)
"""The kinds of these passes in a split backward."""


def replicas_of(program: Program, replicas: Replicas) -> Ints:
    """The replica of each action, or NONE if the plan does not assign the action to its device.

    Reductions of ties belong to no replica.
    """
    num_stages = len(replicas.recompute)
    kind, stage = program.kind, program.stage
    is_forward = _IS_FORWARD[kind]
    is_valid = (stage >= 0) & (stage < num_stages) & (kind != int(Kind.REDUCE_TIE))
    key = np.where(is_valid, program.device_of.astype(np.int64) * num_stages + stage, 0)
    replica = np.where(is_forward, replicas.forward_replicas[key], replicas.backward_replicas[key])
    return np.where(is_valid, replica, NONE)


class JobTable(NamedTuple):
    """The index of each pass of (replica, micro-batch) in a program, or NONE."""

    replica: Ints
    """Over actions."""
    passes: Ints
    """[kind * replicas + replica, micro-batch], for the kinds FORWARD, RECOMPUTE, BACKWARD and WEIGHTS."""
    step: Ints
    """Over replicas."""

    @property
    def forward(self) -> Ints:
        """[replica, micro-batch]: F."""
        return self._of(FORWARD)

    @property
    def recompute(self) -> Ints:
        """[replica, micro-batch]: R."""
        return self._of(RECOMPUTE)

    @property
    def backward(self) -> Ints:
        """[replica, micro-batch]: I or B."""
        return self._of(BACKWARD)

    @property
    def weights(self) -> Ints:
        """[replica, micro-batch]: W or B."""
        return self._of(WEIGHTS)

    def _of(self, kind: int) -> Ints:
        num = len(self.step)
        return self.passes[kind * num : (kind + 1) * num]


def find_jobs(program: Program, replicas: Replicas) -> JobTable:
    """The job table of a program. The proof rejects programs with duplicate passes; here the last one counts."""
    replica = replicas_of(program, replicas)
    num, num_microbatches = replicas.num_replicas, replicas.num_microbatches
    passes = np.full((len(SPLIT_KINDS) * num, num_microbatches), NONE, dtype=np.int64)
    usable = (replica != NONE) & (program.microbatch >= 0) & (program.microbatch < num_microbatches)
    for number, kinds in (
        (FORWARD, (Kind.F,)),
        (RECOMPUTE, (Kind.R,)),
        (BACKWARD, (Kind.I, Kind.B)),
        (WEIGHTS, (Kind.W, Kind.B)),
    ):
        rows = program.rows_of(*kinds)
        rows = rows[usable[rows]]
        passes[number * num + replica[rows], program.microbatch[rows]] = rows
    step = np.full(num, NONE, dtype=np.int64)
    rows = program.rows_of(Kind.STEP)
    rows = rows[replica[rows] != NONE]
    step[replica[rows]] = rows
    return JobTable(replica, passes, step)
