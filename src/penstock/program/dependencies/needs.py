"""The data dependencies of a program: for each action the actions whose results it needs.

The graph follows from the program and its plan alone, so that a timeline file without its profile and cluster has one
too. Receives have no entries of their own: an action that needs a received payload needs its send.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.program.actions import NONE, Kind, is_reduction, is_send
from penstock.program.dependencies.messages import find_consumers
from penstock.program.dependencies.passes import local_edges, passes_from
from penstock.program.job_table import JobTable, find_jobs
from penstock.program.placement import Placement, find_placement
from penstock.program.types import Program

Ties = Mapping[int, tuple[int, ...]]
"""The stages that share parameters, by the number of their all-reduce."""

_Edges = tuple[Ints, Ints]
"""Earlier and later actions."""


class Needs(NamedTuple):
    """The actions that action `a` needs are needs[begin[a]:begin[a + 1]]."""

    begin: Ints
    needs: Ints


def find_needs(program: Program, cause: Ints, ties: Ties | None = None) -> Needs:
    """Find the direct dependencies of every action.

    Args:
        program: A lowered program.
        cause: What each action waited for in a run of the program, or NONE (`Timeline.cause`).
        ties: The stages behind each all-reduce of shared parameters. Without it, such an all-reduce needs the last
            gradient of its device, and an optimizer step needs it only if it is the cause of the step's start.

    Returns:
        The dependencies of all actions, those of the next or previous stage before those of the same stage.
    """
    placement = find_placement(program)
    jobs = find_jobs(program, placement)
    between, within = local_edges(placement)
    send, consumer = find_consumers(program, placement, jobs)
    is_saved = program.kind[send] == Kind.SEND_S
    edges = (
        _in_all_microbatches(jobs, between),
        (send[~is_saved], consumer[~is_saved]),
        _in_all_microbatches(jobs, within),
        (send[is_saved], consumer[is_saved]),
        _producers(program, jobs),
        _closing_edges(program, placement, jobs, cause, ties),
    )
    earlier, later = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    order = np.argsort(later, kind="stable")
    begin = np.searchsorted(later[order], np.arange(program.num_actions + 1))
    return Needs(begin.astype(np.int64), earlier[order])


def _in_all_microbatches(jobs: JobTable, edges: _Edges) -> _Edges:
    """The edges between passes, for every micro-batch whose passes the program has. A fused backward is one action."""
    earlier, later = jobs.passes[edges[0]].ravel(), jobs.passes[edges[1]].ravel()
    known = (earlier != NONE) & (later != NONE) & (earlier != later)
    return earlier[known], later[known]


def _producers(program: Program, jobs: JobTable) -> _Edges:
    """The edges to sends: from the pass that produces the payload, or from the optimizer step; also to all-gathers."""
    is_known = is_send(program.kind) & (jobs.replica != NONE)
    is_after_step = np.isin(program.kind, (Kind.SEND_P, Kind.GATHER_P)) & (jobs.replica != NONE)
    returned = np.flatnonzero(is_after_step)
    in_plan = (program.microbatch >= 0) & (program.microbatch < jobs.passes.shape[1])
    send = np.flatnonzero(is_known & (program.kind != Kind.SEND_P) & in_plan)
    what = program.kind[send].astype(np.int64) - Kind.SEND_F
    producer = jobs.passes[passes_from(what, jobs.replica[send], len(jobs.step)), program.microbatch[send]]
    earlier = np.concatenate([producer, jobs.step[jobs.replica[returned]]])
    later = np.concatenate([send, returned])
    return earlier[earlier != NONE], later[earlier != NONE]


def _closing_edges(program: Program, placement: Placement, jobs: JobTable, cause: Ints, ties: Ties | None) -> _Edges:
    """Edges to reductions and optimizer steps. A gradient is complete after its last W or B on the device."""
    last: dict[tuple[int, int | None], int] = {}
    for replica, action in enumerate(jobs.weights.max(axis=1).tolist()):
        if action != NONE:
            device = int(placement.backward_device[replica])
            last[device, int(placement.replica_stage[replica])] = action
            last[device, None] = max(action, last.get((device, None), NONE))
    reductions: dict[int, list[int]] = {}
    for action in np.flatnonzero(is_reduction(program.kind)).tolist():
        reductions.setdefault(int(program.device_of[action]), []).append(action)
    pairs: list[tuple[int, int]] = []
    for device, actions in reductions.items():
        for action in actions:
            pairs += [
                (last[device, stage], action) for stage in _reduced(program, action, ties) if (device, stage) in last
            ]
    for step in program.rows_of(Kind.STEP).tolist():
        device, stage = int(program.device_of[step]), int(program.stage[step])
        for action in reductions.get(device, ()):
            known = program.kind[action] == Kind.REDUCE_GRAD or ties is not None
            if stage in _reduced(program, action, ties) if known else cause[step] == action:
                pairs.append((action, step))
        if (device, stage) in last:
            pairs.append((last[device, stage], step))
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return edges[:, 0], edges[:, 1]


def _reduced(program: Program, reduction: int, ties: Ties | None) -> tuple[int | None, ...]:
    """The stages whose gradients a reduction sums; None stands for all stages of the device."""
    number = int(program.stage[reduction])
    if program.kind[reduction] == Kind.REDUCE_GRAD:
        return (number,)
    return (None,) if ties is None else ties.get(number, ())
