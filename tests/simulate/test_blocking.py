"""Engines that block at their messages: twins that are equal, and timelines by hand."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeadlockError
from penstock.plan.message_model import MessageModel
from penstock.plan.pricing.pricing import price
from penstock.program.actions import Kind, is_send
from penstock.program.dependencies import find_dependencies
from penstock.program.engine.execution import execute, execute_plainly
from penstock.program.job_table import find_jobs
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.program.seconds import durations
from penstock.schedules.registry import schedule
from penstock.simulate.reference import simulate_plainly
from penstock.simulate.simulator import simulate
from penstock.timeline.types import Timeline
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, pipelines, two_stages
from tests.support.thoroughness import examples

BLOCKING = MessageModel(receive="blocking")
RENDEZVOUS = MessageModel(receive="blocking", send="rendezvous")
TOGETHER = MessageModel(receive="blocking", send="rendezvous", together=True)


def models() -> st.SearchStrategy[MessageModel]:
    return st.builds(
        MessageModel,
        receive=st.just("blocking"),
        send=st.sampled_from(["buffered", "rendezvous"]),
        together=st.booleans(),
        eager_bytes=st.sampled_from([0.0, 100.0]),
    )


def run(case: Case, messages: MessageModel | None) -> Timeline:
    costs = price(msgspec.structs.replace(case.plan, messages=messages), case.profile, case.cluster)
    return simulate(prove(lower(schedule(costs), costs), costs, within_memory=False))


@reaches(deadlock=0.02, runs=0.3, eager=0.05, rendezvous=0.2, together=0.2, slower=0.1)
@examples(250)
@given(pipelines(6) | pipelines(6) | cases(), models())
def test_twins_are_equal_to_the_bit(case: Case, messages: MessageModel) -> None:
    costs = price(msgspec.structs.replace(case.plan, messages=messages), case.profile, case.cluster)
    program = lower(schedule(costs), costs)
    jobs = find_jobs(program, costs)
    dependencies = find_dependencies(program, costs, jobs)
    seconds = durations(program, costs, jobs.replica)
    runs = execute(program, dependencies, costs, seconds), execute_plainly(program, dependencies, costs, seconds)
    for compiled, plain in zip(*runs, strict=True):
        assert np.array_equal(compiled, plain, equal_nan=True)
    try:
        timeline = simulate(prove(program, costs, within_memory=False))
    except DeadlockError:
        reach("deadlock")
        return
    start, end = simulate_plainly(program, costs)
    assert np.array_equal(timeline.start_s, start)
    assert np.array_equal(timeline.end_s, end)
    has_messages = bool(is_send(program.kind).any())
    reach("runs", has_messages)
    reach("eager", dependencies.is_eager.any())
    reach("rendezvous", has_messages and messages.send == "rendezvous")
    reach("together", has_messages and messages.together)
    reach("slower", timeline.iteration_s > run(case, None).iteration_s)
    # Every wait has a cause, and no cause ends after the action that waited for it begins.
    compute = np.flatnonzero(timeline.is_compute & (timeline.cause >= 0))
    assert (timeline.end_s[timeline.cause[compute]] <= timeline.start_s[compute] * (1 + 1e-12)).all()
    late = np.flatnonzero(timeline.is_compute & (timeline.start_s > 0))
    assert np.allclose(timeline.end_s[timeline.cause[late]], timeline.start_s[late], rtol=1e-12)


def spans(timeline: Timeline, device: str) -> str:
    """The compute actions of a device and their starts."""
    program = timeline.program
    number = program.devices.index(device)
    return " ".join(
        f"{program.action(at)}@{timeline.start_s[at]:g}"
        for at in range(int(program.offsets[number]), int(program.offsets[number + 1]))
        if timeline.is_compute[at] and program.action(at).kind is not Kind.STEP
    )


@pytest.mark.parametrize(
    ("messages", "d0", "d1"),
    [
        # F = 2, B = 2; messages pass in 2 seconds, and arrive 1 later.
        (None, "0F0@0 0F1@2 0B0@12 0F2@14 0B1@16 0B2@26", "1F0@5 1B0@7 1F1@9 1B1@11 1F2@19 1B2@21"),
        # d0 blocks in its receive of the first gradient, and sends its second activations only then.
        (BLOCKING, "0F0@0 0F1@2 0B0@12 0F2@14 0B1@22 0B2@32", "1F0@5 1B0@7 1F1@15 1B1@17 1F2@25 1B2@27"),
        # It also waits until these have arrived, and before the second forward for the first ones.
        (RENDEZVOUS, "0F0@0 0F1@5 0B0@15 0F2@17 0B1@25 0B2@32", "1F0@5 1B0@7 1F1@15 1B1@17 1F2@25 1B2@27"),
        # A gradient and activations pass at the same time.
        (TOGETHER, "0F0@0 0F1@5 0B0@12 0F2@14 0B1@19 0B2@26", "1F0@5 1B0@7 1F1@12 1B1@14 1F2@19 1B2@21"),
        # The messages are small: sends do not wait.
        (
            msgspec.structs.replace(RENDEZVOUS, eager_bytes=4.0),
            "0F0@0 0F1@2 0B0@12 0F2@14 0B1@22 0B2@32",
            "1F0@5 1B0@7 1F1@15 1B1@17 1F2@25 1B2@27",
        ),
    ],
)
def test_by_hand(messages: MessageModel | None, d0: str, d1: str) -> None:
    timeline = run(two_stages(num_microbatches=3), messages)
    assert spans(timeline, "d0") == d0
    assert spans(timeline, "d1") == d1
