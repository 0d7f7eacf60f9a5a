"""Which place an action belongs to, and where in a program each job stands."""

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program.actions import NONE, Kind
from penstock.program.types import Program

FORWARD_SIDE = (Kind.F, Kind.SEND_F, Kind.RECV_F, Kind.SEND_S, Kind.RECV_P)
"""Kinds that happen where a stage's forward runs; the others happen where its backward runs."""


def replicas_of(program: Program, costs: Costs) -> Ints:
    """The place that each action works for, or NONE where its device has no such job.

    Reductions over ties belong to no place.
    """
    num_stages = len(costs.parameter_bytes)
    forward = np.isin(program.kind, FORWARD_SIDE)
    found = np.full(program.num_actions, NONE, dtype=np.int64)
    valid = (program.stage >= 0) & (program.stage < num_stages) & (program.kind != Kind.REDUCE_TIE)
    key = program.device_of.astype(np.int64) * num_stages + program.stage
    for devices, mask in ((costs.forward_device, forward), (costs.backward_device, ~forward)):
        place_key = devices * num_stages + costs.replica_stage
        order = np.argsort(place_key, kind="stable")
        rows = np.flatnonzero(mask & valid)
        at = np.searchsorted(place_key[order], key[rows])
        at[at == len(order)] = 0
        match = order[at]
        found[rows] = np.where(place_key[match] == key[rows], match, NONE)
    return found


@dataclass(frozen=True, eq=False)
class JobTable:
    """Where each job of (place, micro-batch) stands in a program; NONE where it does not.

    `backward` holds I or B, `weights` holds W or B; `step` has one entry a place.
    """

    replica: Ints
    forward: Ints
    recompute: Ints
    backward: Ints
    weights: Ints
    step: Ints


def find_jobs(program: Program, costs: Costs) -> JobTable:
    """The table of a program in which no job stands twice (the proof sees to that; here the last one counts)."""
    place = replicas_of(program, costs)
    shape = (costs.num_replicas, costs.num_microbatches)
    forward, recompute, backward, weights = (np.full(shape, NONE, dtype=np.int64) for _ in range(4))
    usable = (place != NONE) & (program.microbatch >= 0) & (program.microbatch < shape[1])
    for table, kinds in (
        (forward, (Kind.F,)),
        (recompute, (Kind.R,)),
        (backward, (Kind.I, Kind.B)),
        (weights, (Kind.W, Kind.B)),
    ):
        rows = np.flatnonzero(usable & np.isin(program.kind, kinds))
        table[place[rows], program.microbatch[rows]] = rows
    step = np.full(costs.num_replicas, NONE, dtype=np.int64)
    rows = np.flatnonzero((place != NONE) & (program.kind == Kind.STEP))
    step[place[rows]] = rows
    return JobTable(place, forward, recompute, backward, weights, step)
