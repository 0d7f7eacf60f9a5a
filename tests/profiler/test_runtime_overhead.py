"""The overhead of the runtime, from plans that differ in the number of actions and messages."""

from collections import Counter

import msgspec
import pytest
import torch
from torch import nn

import penstock
from penstock.errors import RunError
from penstock.model.blocks import find_blocks
from penstock.profiler import runtime_overhead as overheads
from penstock.profiler.runtime_overhead import (
    MeasuredOverhead,
    Spent,
    count_jobs_and_messages,
    measure_overhead,
    measure_until_steady,
    plans,
    solve_costs,
)
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


def _spent(job_s: float, message_s: float, byte_s: float = 1e-10) -> Spent:
    plan_s = [jobs * job_s + ends * message_s + 0.004 for jobs, ends in map(count_jobs_and_messages, plans())]
    return Spent(tuple(plan_s), message_s + byte_s * overheads.LARGE_BYTES)


def _measured(attempts: list[Spent]) -> tuple[MeasuredOverhead, int]:
    left = iter(attempts)
    found = measure_until_steady(lambda: next(left))
    return found, len(attempts) - len(list(left))


def test_two_results_that_agree_end_the_measurement() -> None:
    attempts = [_spent(9e-5, 2e-5), _spent(3e-5, 6e-5), _spent(3e-5, 2e-5), _spent(3.4e-5, 2.4e-5), _spent(1.0, 1.0)]
    found, num = _measured(attempts)
    assert num == 4
    assert found.is_steady
    assert msgspec.structs.astuple(found.costs) == pytest.approx((3.2e-5, 2.2e-5, 1e-10))


@pytest.mark.parametrize(
    "attempts",
    [
        [_spent(-1e-5, 2e-5)] * 6,
        [_spent(3e-5, -2e-5)] * 6,
        [_spent(3e-5, 2e-5, -1e-12)] * 6,
        [_spent(3e-5 * 1.4**number, 2e-5) for number in range(6)],
    ],
)
def test_a_busy_machine_gives_upper_bounds_and_never_zero(attempts: list[Spent]) -> None:
    found, num = _measured(attempts)
    assert num == overheads.MAX_ATTEMPTS
    assert not found.is_steady
    assert all(cost > 0 for cost in msgspec.structs.astuple(found.costs))


def test_bounds_hold() -> None:
    found, _ = _measured([_spent(3e-5 * 1.4**number, 2e-5) for number in range(6)])
    assert found.costs.job_s >= 3e-5
    assert found.costs.message_s >= 2e-5
    assert found.costs.byte_s >= 1e-10


@undisturbed
def test_this_machine() -> None:
    found = measure_overhead(1).costs
    # Wide limits for any machine: they check the unit only.
    assert 1e-6 < found.job_s < 0.05
    assert 1e-6 < found.message_s < 0.05
    assert 0 < found.byte_s < 1e-7


def test_a_failed_process_is_an_error() -> None:
    with pytest.raises(RunError, match="positive integer"):
        measure_overhead(0)


def test_a_failed_measurement_is_an_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overheads, "LIMIT_S", 0.01)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    profile = penstock.profile(
        model, torch.randn(4, 4), lambda out: out.square().mean(), seconds=0, remeasure_overheads=True
    )
    assert not profile.overheads
    assert profile.assumptions[-1].startswith("The overhead of the runtime is unknown: assumed none.")
