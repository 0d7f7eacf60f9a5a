"""From what ranks wrote down to a timeline."""

from typing import Any

import msgspec
import numpy as np
import pytest
from torch import nn

from penstock.model.blocks import find_blocks
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.program.actions import RECV_KINDS, Kind
from penstock.runtime.executor.recorder import _shift_clock, measured_timeline
from penstock.runtime.layout.compile import compile_plan
from penstock.simulate.simulator import simulate
from penstock.timeline.summary import critical_path
from penstock.timeline.types import Timeline

PIECES = ((0, 1, "r0"), (1, 4, "r1"))
"""The second device has three times as much to do."""
PLAN = Plan(
    planner="hand",
    schedule="gpipe",
    num_microbatches=4,
    micro_batch_size=1,
    profile=Origin(name="p", digest=""),
    cluster=Origin(name="c", digest=""),
    stages=tuple(Stage(start=a, stop=b, forward=on(device), backward=on(device)) for a, b, device in PIECES),
)


def jobs_of(timeline: Timeline) -> list[str]:
    program = timeline.program
    return [program.name(action) for action in critical_path(timeline) if program.kind[action] <= Kind.STEP]


def test_a_message_that_was_there_is_not_what_its_job_waited_for() -> None:
    proof = compile_plan(PLAN, find_blocks(nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))), None, None)
    program, simulated = proof.program, simulate(proof)
    consumers = proof.dependencies.consumers
    ranks = []
    for number in range(2):
        rows = range(int(program.offsets[number]), int(program.offsets[number + 1]))
        spans = []
        for row in rows:
            start, end = float(simulated.start_s[row]), float(simulated.end_s[row])
            if program.kind[row] in RECV_KINDS:
                # What a rank sees of a message is that it is there, when it needs it.
                transfer = int(proof.dependencies.transfer_of[row])
                user = int(consumers.values[consumers.begin[transfer]])
                end = float(simulated.start_s[user])
            spans.append((start, end + 1e-5 if program.kind[row] in RECV_KINDS else end))
        steps = [row for row in rows if program.kind[row] == Kind.STEP]
        ranks.append((spans, (float(simulated.start_s[steps[0]]), float(simulated.end_s[steps[-1]]))))
    measured = measured_timeline(proof, ["r0", "r1"], ranks)
    assert np.isclose(measured.iteration_s, simulated.iteration_s)
    assert jobs_of(measured) == jobs_of(simulated)
    assert jobs_of(measured)[1:4] == ["1F0 on r1", "1F1 on r1", "1F2 on r1"]


def test_clocks_of_other_hosts_are_shifted() -> None:
    def shift(record: Any) -> Any:
        spans, stepped = _shift_clock(record, first)
        return spans.tolist(), stepped

    first = ("a", 100.0, np.array([(90.0, 91.0)]), (95.0, 96.0))
    same = ("a", 103.0, np.array([(90.0, 91.0)]), (95.0, 96.0))
    other = ("b", 40.0, np.array([(30.0, 31.0), (0.0, 2.0)]), (35.0, 36.0))
    assert shift(first) == ([[90.0, 91.0]], (95.0, 96.0))
    # One host has one clock, whenever its ranks left the barrier.
    assert shift(same) == ([[90.0, 91.0]], (95.0, 96.0))
    assert shift(other) == ([[90.0, 91.0], [60.0, 62.0]], (95.0, 96.0))


REMOTE = msgspec.structs.replace(
    PLAN,
    num_microbatches=1,
    stages=(Stage(start=0, stop=1, forward=on("r0"), backward=on("r1")), *PLAN.stages[1:]),
)


@pytest.mark.parametrize("is_known", [False, True])
def test_steps_and_returned_weights_have_the_times_of_the_step(is_known: bool) -> None:
    proof = compile_plan(REMOTE, find_blocks(nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))), None, None)
    program = proof.program
    ranks = []
    for number in range(2):
        rows = range(int(program.offsets[number]), int(program.offsets[number + 1]))
        is_return = [program.kind[row] in (Kind.SEND_P, Kind.RECV_P) for row in rows]
        spans = [
            ((60.0, 64.0) if is_known else (0.0, 0.0)) if returned else (1.0 + row, 2.0 + row)
            for row, returned in zip(rows, is_return, strict=True)
        ]
        ranks.append((spans, (50.0, 55.0 + number)))
    # A third rank has no device.
    measured = measured_timeline(proof, ["r0", "r1"], [*ranks, ([], (0.0, 0.0))])
    zero = 1.0  # the first action starts then
    steps = np.flatnonzero(program.kind == Kind.STEP)
    spans_of_steps = [(measured.start_s[row] + zero, measured.end_s[row] + zero) for row in steps]
    # r1 steps both stages: the first of them takes all the time.
    assert spans_of_steps == [(50.0, 56.0), (56.0, 56.0)]
    returned = np.flatnonzero(np.isin(program.kind, (Kind.SEND_P, Kind.RECV_P)))
    assert len(returned) == 2
    expected = (60.0, 64.0) if is_known else (55.0, 55.0)
    assert [(measured.start_s[row] + zero, measured.end_s[row] + zero) for row in returned] == [expected] * 2
