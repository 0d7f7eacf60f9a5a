"""The replica of every action, and the index of every pass in a program."""

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program.actions import NONE, Kind, is_one_of
from penstock.program.types import Program

FORWARD_SIDE = (Kind.F, Kind.SEND_F, Kind.RECV_F, Kind.SEND_S, Kind.RECV_P)
"""Kinds that run on the forward's device; the others run on the backward's device."""


def replicas_of(program: Program, costs: Costs) -> Ints:
    """The replica of each action, or NONE if the plan gives its device no such action.

    Reductions of ties belong to no replica.
    """
    num_stages = len(costs.parameter_bytes)
    kind, stage = program.kind, program.stage
    is_forward = is_one_of(kind, FORWARD_SIDE)
    is_valid = (stage >= 0) & (stage < num_stages) & (kind != Kind.REDUCE_TIE)
    key = np.where(is_valid, program.device_of.astype(np.int64) * num_stages + stage, 0)
    replica = np.where(is_forward, costs.forward_replicas[key], costs.backward_replicas[key])
    return np.where(is_valid, replica, NONE)


@dataclass(frozen=True, eq=False)
class JobTable:
    """The index of each pass of (replica, micro-batch) in a program, or NONE.

    `backward` holds I or B, `weights` holds W or B; `step` has one entry per replica.
    """

    replica: Ints
    forward: Ints
    recompute: Ints
    backward: Ints
    weights: Ints
    step: Ints


def find_jobs(program: Program, costs: Costs) -> JobTable:
    """The job table of a program. The proof refuses programs in which a pass occurs twice; here the last one counts."""
    replica = replicas_of(program, costs)
    shape = (costs.num_replicas, costs.num_microbatches)
    forward, recompute, backward, weights = (np.full(shape, NONE, dtype=np.int64) for _ in range(4))
    usable = (replica != NONE) & (program.microbatch >= 0) & (program.microbatch < shape[1])
    for table, kinds in (
        (forward, (Kind.F,)),
        (recompute, (Kind.R,)),
        (backward, (Kind.I, Kind.B)),
        (weights, (Kind.W, Kind.B)),
    ):
        rows = np.flatnonzero(usable & is_one_of(program.kind, kinds))
        table[replica[rows], program.microbatch[rows]] = rows
    step = np.full(costs.num_replicas, NONE, dtype=np.int64)
    rows = np.flatnonzero((replica != NONE) & (program.kind == Kind.STEP))
    step[replica[rows]] = rows
    return JobTable(replica, forward, recompute, backward, weights, step)
