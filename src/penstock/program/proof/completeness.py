"""Completeness: every action occurs exactly once, and no action is superfluous."""

from collections.abc import Callable
from functools import partial

import numpy as np

from penstock.arrays import Bools, Ints
from penstock.errors import MismatchError, ProofError
from penstock.plan.pricing import PARAMETERS, Costs
from penstock.program.actions import (
    NONE,
    ONCE_KINDS,
    RECV_KINDS,
    SEND_KINDS,
    Action,
    Kind,
    collective_kind,
    is_collective,
    is_recv,
    is_send,
)
from penstock.program.types import Program


def check_complete(program: Program, costs: Costs, replica: Ints) -> Ints:
    """Reject a program with a missing, duplicate or misplaced action; return the flow of each send and receive."""
    names = tuple(device.name for device in costs.cluster.devices)
    if program.devices != names:
        raise MismatchError("the program's devices are not those of the cluster", hint="Plan for this cluster.")
    flow = _flows_of(program, costs, replica)
    _check_strays(program, costs, replica, flow)
    num = costs.num_microbatches
    job = replica * num + program.microbatch
    every = np.ones(costs.num_replicas * num, dtype=bool)
    again = np.repeat(costs.recompute[costs.replica_stage], num)
    for kinds, expected in (
        ((Kind.F,), every),
        ((Kind.R,), again),
        ((Kind.I, Kind.B), every),
        ((Kind.W, Kind.B), every),
    ):
        rows = np.flatnonzero(np.isin(program.kind, kinds))
        _check_once(program, rows, job[rows], expected, partial(_job, costs, kinds[0]))
    rows = program.rows_of(Kind.STEP)
    everywhere = np.ones(costs.num_replicas, dtype=bool)
    _check_once(program, rows, replica[rows], everywhere, partial(_step, costs))
    _check_collectives(program, costs)
    _check_messages(program, costs, flow)
    return flow


def _flows_of(program: Program, costs: Costs, replica: Ints) -> Ints:
    """The flow that each send and receive belongs to; NONE where there is no such flow, and for other actions."""
    flow = np.full(program.num_actions, NONE, dtype=np.int64)
    for first, find in ((Kind.SEND_F, costs.flows.outgoing), (Kind.RECV_F, costs.flows.incoming)):
        rows = np.flatnonzero((program.kind >= first) & (program.kind <= first + PARAMETERS))
        flow[rows] = find(program.kind[rows].astype(np.int64) - first, replica[rows], program.peer[rows])
    return flow


def _check_strays(program: Program, costs: Costs, replica: Ints, flow: Ints) -> None:
    kind = program.kind
    is_message = is_send(kind) | is_recv(kind)
    once = np.isin(kind, ONCE_KINDS)
    is_tie = kind == Kind.REDUCE_TIE
    no_microbatch = np.where(
        once, program.microbatch != NONE, (program.microbatch < 0) | (program.microbatch >= costs.num_microbatches)
    )
    replicated = np.zeros(costs.num_replicas + 1, dtype=bool)
    for reduction in costs.reductions:
        if not reduction.is_tie:
            replicated[costs.replicas(reduction.number)] = True
    recomputed = np.append(costs.recompute[costs.replica_stage], False)
    for mask, problem in (
        (~np.isin(kind, tuple(Kind)), "unknown kind of action"),
        (no_microbatch, f"the micro-batch does not exist (the plan has {costs.num_microbatches})"),
        ((replica == NONE) & ~is_tie, "the plan does not assign this action to this device"),
        (is_message & (flow == NONE), "the plan has no such message between these devices"),
        (~is_message & (program.peer != NONE), "only sends and receives have a peer"),
        ((kind == Kind.R) & ~recomputed[replica], "the plan does not recompute this stage"),
        ((kind == Kind.REDUCE_GRAD) & ~replicated[replica], "this stage is not replicated"),
    ):
        if mask.any():
            at = int(np.flatnonzero(mask)[0])
            raise ProofError(f"{_name(program, at)}: {problem}", hint="Remove the action.")


def _check_once(program: Program, rows: Ints, key: Ints, expected: Bools, show: Callable[[int], str]) -> None:
    counts = np.bincount(key, minlength=len(expected))
    if (counts == expected).all():
        return
    double = np.flatnonzero(counts > expected)
    if len(double):
        at = int(rows[np.flatnonzero(key == double[0])[-1]])
        raise ProofError(f"{program.name(at)} occurs twice", hint="Every action must occur exactly once.")
    missing = show(int(np.flatnonzero(counts < expected)[0]))
    raise ProofError(f"{missing} is missing", hint="Every action must occur exactly once.")


def _check_collectives(program: Program, costs: Costs) -> None:
    expected = {
        (int(collective_kind(is_tie=item.is_tie, is_gather=item.is_gather)), item.number, device)
        for item in costs.collectives
        for device in item.ring.devices
    }
    seen: set[tuple[int, int, int]] = set()
    for at in np.flatnonzero(is_collective(program.kind)).tolist():
        key = (int(program.kind[at]), int(program.stage[at]), int(program.device_of[at]))
        if key not in expected:
            what = "all-gather" if key[0] == Kind.GATHER_P else "reduction"
            raise ProofError(f"{program.name(at)}: this device has no such {what}", hint="Remove the action.")
        if key in seen:
            raise ProofError(f"{program.name(at)} occurs twice", hint="Every action must occur exactly once.")
        seen.add(key)
    for kind, number, device in sorted(expected - seen):
        action = Action(Kind(kind), number)
        raise ProofError(
            f"{action} on {program.devices[device]} is missing", hint="Every action must occur exactly once."
        )


def _check_messages(program: Program, costs: Costs, flow: Ints) -> None:
    flows, num = costs.flows, costs.num_microbatches
    once = flows.what == PARAMETERS
    expected = np.repeat(~once, num)
    expected[np.flatnonzero(once) * num] = True
    for kinds, ends, outgoing in ((SEND_KINDS, flows.source_replica, True), (RECV_KINDS, flows.target_replica, False)):
        rows = np.flatnonzero(np.isin(program.kind, kinds))
        key = flow[rows] * num + np.maximum(program.microbatch[rows], 0)

        def show(missing: int, kinds: tuple[Kind, ...] = kinds, ends: Ints = ends, outgoing: bool = outgoing) -> str:
            number = missing // num
            here, there = (flows.source, flows.target) if outgoing else (flows.target, flows.source)
            microbatch = NONE if once[number] else missing % num
            stage = int(costs.replica_stage[ends[number]])
            action = Action(kinds[flows.what[number]], stage, microbatch, program.devices[there[number]])
            return f"{action} on {program.devices[here[number]]}"

        _check_once(program, rows, key, expected, show)


def _job(costs: Costs, kind: Kind, missing: int) -> str:
    replica, microbatch = divmod(missing, costs.num_microbatches)
    device = (costs.forward_device if kind == Kind.F else costs.backward_device)[replica]
    action = Action(kind, int(costs.replica_stage[replica]), microbatch)
    return f"{action} on {costs.cluster.devices[device].name}"


def _step(costs: Costs, missing: int) -> str:
    action = Action(Kind.STEP, int(costs.replica_stage[missing]))
    return f"{action} on {costs.cluster.devices[costs.backward_device[missing]].name}"


def _name(program: Program, at: int) -> str:
    """The name of an action, valid or not."""
    try:
        return program.name(at)
    except (ValueError, IndexError):
        return f"action {at - int(program.offsets[program.device_of[at]])} of {program.devices[program.device_of[at]]}"
