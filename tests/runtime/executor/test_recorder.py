"""From what ranks wrote down to a timeline."""

import numpy as np
from torch import nn

from penstock.model.blocks import find_blocks
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.program.actions import RECV_KINDS, Kind
from penstock.runtime.executor.recorder import measured_timeline
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
