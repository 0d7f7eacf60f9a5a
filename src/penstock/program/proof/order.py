"""Order: dependencies within a device are met, and sends and receives pair up on every link."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.errors import ProofError
from penstock.plan.pricing import ACTIVATION, GRADIENT, PARAMETERS, SAVED, Costs
from penstock.program.actions import Kind, is_recv, is_send
from penstock.program.job_table import JobTable
from penstock.program.types import Program


class _Rule(NamedTuple):
    """Each action `later` must follow the action `earlier` of the same row."""

    earlier: Ints
    later: Ints
    why: str


def check_order(program: Program, costs: Costs, jobs: JobTable) -> None:
    """Reject a program in which an action precedes one of its dependencies on the same device."""
    worst: tuple[int, int, str] | None = None
    for rule in _rules(program, costs, jobs):
        broken = np.flatnonzero(rule.earlier.ravel() >= rule.later.ravel())
        if len(broken):
            at = broken[np.argmin(rule.later.ravel()[broken])]
            found = (int(rule.later.ravel()[at]), int(rule.earlier.ravel()[at]), rule.why)
            worst = found if worst is None else min(worst, found)
    if worst is not None:
        later, earlier, why = worst
        raise ProofError(f"{program.name(later)} precedes {program.action(earlier)}: {why}", hint="Swap their order.")


def _rules(program: Program, costs: Costs, jobs: JobTable) -> Iterator[_Rule]:
    flows = costs.flows
    yield _Rule(
        jobs.forward[flows.local_forward[:, 0]],
        jobs.forward[flows.local_forward[:, 1]],
        "a forward needs the forward of the previous stage",
    )
    yield _Rule(
        jobs.backward[flows.local_backward[:, 0]],
        jobs.backward[flows.local_backward[:, 1]],
        "a backward needs the backward of the next stage",
    )
    again = costs.recompute[costs.replica_stage]
    home = costs.forward_device == costs.backward_device
    yield _Rule(jobs.forward[home & ~again], jobs.backward[home & ~again], "a backward needs its forward")
    yield _Rule(
        jobs.forward[home & again], jobs.recompute[home & again], "a recompute needs the input that the forward kept"
    )
    yield _Rule(jobs.recompute[again], jobs.backward[again], "a backward needs its recompute")
    split = jobs.backward != jobs.weights
    yield _Rule(jobs.backward[split], jobs.weights[split], "a weight gradient needs its input gradient")
    for kind, what in ((Kind.SEND_F, ACTIVATION), (Kind.SEND_B, GRADIENT), (Kind.SEND_S, SAVED)):
        rows = program.rows_of(kind)
        table = jobs.backward if what == GRADIENT else jobs.forward
        yield _Rule(table[jobs.replica[rows], program.microbatch[rows]], rows, "its payload is not computed yet")
    for kind, table in ((Kind.RECV_F, jobs.forward), (Kind.RECV_B, jobs.backward)):
        rows = program.rows_of(kind)
        yield _Rule(rows, table[jobs.replica[rows], program.microbatch[rows]], "it needs the received payload")
    rows = program.rows_of(Kind.RECV_S)
    consumer = np.where(
        again[jobs.replica[rows], None], jobs.recompute[jobs.replica[rows]], jobs.backward[jobs.replica[rows]]
    )
    picked = np.take_along_axis(consumer, program.microbatch[rows, None].astype(np.int64), axis=1)[:, 0]
    yield _Rule(rows, picked, "it needs the received payload")
    yield from _closing_rules(program, costs, jobs)


def _closing_rules(program: Program, costs: Costs, jobs: JobTable) -> Iterator[_Rule]:
    last_weights, last_forward = jobs.weights.max(axis=1), jobs.forward.max(axis=1)
    yield _Rule(last_weights, jobs.step, "the step needs all gradients")
    rows = program.rows_of(Kind.SEND_P)
    yield _Rule(jobs.step[jobs.replica[rows]], rows, "it sends weights before their optimizer step")
    rows = program.rows_of(Kind.RECV_P)
    yield _Rule(last_forward[jobs.replica[rows]], rows, "the old weights are still in use")
    rows = program.rows_of(Kind.REDUCE_GRAD)
    yield _Rule(last_weights[jobs.replica[rows]], rows, "a gradient is not complete yet")
    yield _Rule(rows, jobs.step[jobs.replica[rows]], "the step needs the reduced gradients")
    rows = program.rows_of(Kind.GATHER_P)
    yield _Rule(jobs.step[jobs.replica[rows]], rows, "it gathers parameters before their optimizer step")
    ties = {item.number: item.stages for item in costs.reductions if item.is_tie}
    for row in program.rows_of(Kind.REDUCE_TIE).tolist():
        stages = ties[int(program.stage[row])]
        held = np.isin(costs.replica_stage, stages) & (costs.backward_device == program.device_of[row])
        at = np.full(int(held.sum()), row)
        yield _Rule(last_weights[held], at, "a gradient is not complete yet")
        yield _Rule(at, jobs.step[held], "the step needs the reduced gradients")


def check_links(program: Program, costs: Costs, flow: Ints) -> None:
    """Reject a program in which the sends and receives of a link are in different orders."""
    num_devices = len(program.devices)
    device = program.device_of.astype(np.int64)
    message = flow * (costs.num_microbatches + 1) + program.microbatch
    send = np.flatnonzero(is_send(program.kind))
    receive = np.flatnonzero(is_recv(program.kind))
    send = send[np.argsort(device[send] * num_devices + program.peer[send], kind="stable")]
    receive = receive[np.argsort(program.peer[receive] * num_devices + device[receive], kind="stable")]
    wrong = np.flatnonzero(message[send] != message[receive])
    if len(wrong):
        sent, received = int(send[wrong[0]]), int(receive[wrong[0]])
        raise ProofError(
            f"{program.name(received)} is matched with {program.name(sent)}, which is a different message",
            hint="On every link, receives must be in the order of the sends.",
        )


assert PARAMETERS == Kind.SEND_P - Kind.SEND_F, "flows and sends are numbered alike"
