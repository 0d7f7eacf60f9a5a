"""The overhead of the runtime, from plans that differ in the number of actions and messages."""

from collections import Counter

import pytest
import torch
from torch import nn

import penstock
from penstock.errors import RunError
from penstock.model.blocks import find_blocks
from penstock.profiler import runtime_overhead as overheads
from penstock.profiler.runtime_overhead import count_jobs_and_messages, measure_overhead, plans, solve_costs
from penstock.program.actions import Kind
from penstock.runtime.layout.compile import compile_plan
from tests.support.undisturbed import undisturbed

JOBS = {Kind.F, Kind.I, Kind.W, Kind.B}
MESSAGES = {Kind.SEND_F, Kind.SEND_B, Kind.RECV_F, Kind.RECV_B}


@pytest.mark.parametrize("number", range(len(plans())))
def test_counts_match_the_program(number: int) -> None:
    plan = plans()[number]
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(overheads.NUM_UNITS)))
    program = compile_plan(plan, find_blocks(model), None, None).program
    kinds = Counter(action.kind for device in plan.devices for action in program.actions(device))
    jobs, ends = (sum(kinds[kind] for kind in some) for some in (JOBS, MESSAGES))
    assert (jobs, ends) == count_jobs_and_messages(plan)


def test_costs_are_recovered() -> None:
    seconds = [jobs * 3e-5 + ends * 2e-5 + 0.004 for jobs, ends in map(count_jobs_and_messages, plans())]
    assert solve_costs(seconds) == pytest.approx((3e-5, 2e-5))


def test_nothing_costs_less_than_nothing() -> None:
    assert solve_costs([0.01 - 1e-5 * jobs for jobs, _ in map(count_jobs_and_messages, plans())])[0] == 0.0


@undisturbed
def test_this_machine() -> None:
    measure_overhead.cache_clear()
    found = measure_overhead("cpu-1-thread", 1)
    assert found is measure_overhead("cpu-1-thread", 1)
    # Wide limits for any machine: they check the unit only.
    assert 1e-6 < found.job_s < 0.05
    assert 1e-6 < found.message_s < 0.05
    assert found.byte_s < 1e-7
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    profile = penstock.profile(model, torch.randn(4, 4), lambda out: out.square().mean(), seconds=0)
    assert [spent.kind for spent in profile.overheads] == list(profile.kinds)


def test_a_failed_process_is_an_error() -> None:
    with pytest.raises(RunError, match="positive integer"):
        measure_overhead("cpu-0-threads", 0)


def test_a_failed_measurement_is_an_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    measure_overhead.cache_clear()
    monkeypatch.setattr(overheads, "LIMIT_S", 0.01)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    profile = penstock.profile(model, torch.randn(4, 4), lambda out: out.square().mean(), seconds=0)
    assert not profile.overheads
    assert profile.assumptions[-1].startswith("The overhead of the runtime is unknown: assumed none.")
