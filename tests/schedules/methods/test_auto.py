"""The schedule auto: never worse than the others, within memory, and as good as the theory allows on equal stages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MemoryLimitError
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.plan.shapes import Shape
from penstock.planners.api import plan
from penstock.program.actions import Kind
from penstock.program.lowering.lowering import lower
from penstock.program.makespan import makespan_s
from penstock.program.proof.proof import prove
from penstock.schedules.methods.auto import best_order
from penstock.schedules.ordering.clock import with_split
from penstock.schedules.registry import SCHEDULES, schedule
from penstock.schedules.search.greedy import Greedy, Rules
from penstock.simulate.simulator import simulate
from tests.support.planner_cases import unequal
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import Case, cases, pipelines, reach_features, with_limits
from tests.support.thoroughness import examples

ROUNDING = 1 + 1e-12
"""Estimates add up the same seconds in another order than the simulator."""


def _seconds(costs: Costs, name: str) -> float:
    return makespan_s(prove(lower(schedule(costs, name), costs), costs))


@reaches(better=0.03, differ=0.1)
@examples(60)
@given(cases() | pipelines(8))
def test_never_worse_than_any_other(case: Case) -> None:
    costs = case.costs
    others = [_seconds(costs, name) for name in SCHEDULES if name != "auto"]
    seconds = _seconds(costs, "auto")
    assert seconds <= min(others) * ROUNDING
    reach("better", seconds * ROUNDING < min(others))
    reach("differ", min(others) * ROUNDING < max(others))


@reaches(too_large=0.05)
@examples(40)
@given(cases())
def test_fits_wherever_another_fits(case: Case) -> None:
    # The order of auto_fused depends on the limits, so it need not find the same one again under tighter limits.
    peaks = [
        prove(lower(schedule(case.costs, name), case.costs), case.costs).peak_bytes
        for name in SCHEDULES
        if not name.startswith("auto")
    ]
    tightest = min(peaks, key=lambda peak: float(peak.max()))
    costs = with_limits(case, [int(np.ceil(peak)) for peak in tightest]).costs
    fitting = []
    for name in SCHEDULES:
        try:
            fitting.append(_seconds(costs, name))
        except MemoryLimitError:
            assert name != "auto"
            reach("too_large")
    assert _seconds(costs, "auto") <= min(fitting) * ROUNDING


@reaches(several_devices=0.1, replicated=0.05, remote=0.05, shared=0.02)
@examples(100)
@given(cases())
def test_makespan_is_the_simulators(case: Case) -> None:
    costs = case.costs
    proof = prove(case.lowered(costs), costs)
    assert makespan_s(proof) == simulate(proof).iteration_s
    reach_features(case)


def _equal(
    num_stages: int, num_microbatches: int, times: tuple[float, float, float], memory: int | None, cut: int = 0
) -> Costs:
    forward, input_grad, weight_grad = times
    profile = equal_profile(
        num_stages,
        forward_s=forward,
        input_grad_s=input_grad,
        weight_grad_s=weight_grad,
        saved_bytes=1000,
        cut_bytes=cut,
    )
    cluster = one_host(num_stages, bandwidth=8.0, memory_bytes=memory)
    made = plan(profile, cluster, num_microbatches, planner="uniform", schedule="auto", shape=Shape.STRAIGHT)
    return price(made, profile, cluster)


@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (1.0, 2.0, 1.0), (2.0, 1.0, 3.0), (1.0, 1.25, 1.0)])
@pytest.mark.parametrize(("num_stages", "num_microbatches"), [(2, 4), (4, 8), (4, 16), (8, 16), (8, 24)])
def test_meets_the_zero_bubble_bound_with_memory_for_2p(
    num_stages: int, num_microbatches: int, times: tuple[float, float, float]
) -> None:
    costs = _equal(num_stages, num_microbatches, times, memory=2 * num_stages * 1000)
    bound = (num_stages - 1) * times[0] + num_microbatches * sum(times)
    assert _seconds(costs, "auto") == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (1.0, 2.0, 1.0), (1.0, 1.5, 0.5), (2.0, 1.0, 3.0)])
@pytest.mark.parametrize("cut", [0, 2])
def test_no_worse_than_h1_with_its_memory(times: tuple[float, float, float], cut: int) -> None:
    for num_stages, num_microbatches in ((2, 2), (4, 3), (4, 4), (4, 12), (8, 16)):
        unlimited = _equal(num_stages, num_microbatches, times, None, cut)
        peak = prove(lower(schedule(unlimited, "zb_h1"), unlimited), unlimited).peak_bytes.max()
        costs = _equal(num_stages, num_microbatches, times, int(peak), cut)
        assert _seconds(costs, "auto") <= _seconds(costs, "zb_h1") * ROUNDING


def test_memory_is_kept() -> None:
    """Memory for three of eight stages' micro-batches: no other schedule fits, auto does, and says so by proving."""
    costs = _equal(8, 16, (1.0, 1.0, 1.0), memory=3000)
    for name in SCHEDULES:
        if not name.startswith("auto"):
            with pytest.raises(MemoryLimitError):
                _seconds(costs, name)
    assert prove(lower(schedule(costs, "auto"), costs), costs).peak_bytes.max() <= 3000


def test_too_little_room_for_the_first_micro_batch_still_ends() -> None:
    costs = _equal(3, 4, (1.0, 1.0, 1.0), memory=None)
    found = Greedy(costs).run(Rules(split=True, room=np.zeros(3)))
    assert found is not None
    prove(lower(found, costs), costs)


@reaches(split=0.05)
@examples(60)
@given(cases() | pipelines(8))
def test_whole_backwards_stay_whole(case: Case) -> None:
    kinds = schedule(case.costs, "auto_fused").kind
    assert Kind.I not in kinds
    assert Kind.W not in kinds
    others = [name for name in SCHEDULES if not name.startswith(("auto", "zb", "v_"))]
    whole = with_split(case.costs, False)
    best, seconds = min(_seconds(whole, name) for name in others), _seconds(case.costs, "auto_fused")
    assert seconds <= best * ROUNDING
    reach("split", case.plan.split_backward)


def test_whole_backwards_are_ordered_better_than_by_any_named_schedule() -> None:
    num_better = 0
    for seed in range(8):
        problem = unequal(seed, num_units=6, num_devices=3, num_microbatches=6)
        chosen = plan(problem.profile, problem.cluster, problem.num_microbatches, planner="balanced", schedule="1f1b")
        costs = price(chosen, problem.profile, problem.cluster)
        named = min(_seconds(costs, name) for name in SCHEDULES if not name.startswith(("auto", "zb", "v_")))
        seconds = _seconds(costs, "auto_fused")
        assert seconds <= named * ROUNDING
        num_better += seconds * ROUNDING < named
    assert num_better >= 2


V_SCHEDULES = ("v_half", "v_min", "zb_v")


@pytest.mark.parametrize("name", V_SCHEDULES)
@pytest.mark.parametrize(("num_devices", "num", "cut"), [(2, 4, 40), (3, 3, 0), (4, 8, 40), (6, 12, 0)])
def test_no_worse_than_v_schedules_with_their_memory(num_devices: int, num: int, cut: int, name: str) -> None:
    """On equal stages, with the memory that each of them needs with its buffers."""
    for times in ((1.0, 1.0, 1.0), (1.0, 1.2, 0.8)):
        unlimited = _equal_v(num_devices, num, times, None, cut)
        peak = prove(lower(schedule(unlimited, name), unlimited), unlimited).peak_bytes.max()
        costs = _equal_v(num_devices, num, times, int(peak), cut)
        assert _seconds(costs, "auto") <= _seconds(costs, name) * ROUNDING


@reaches(limited=0.3, fits=0.2)
@examples(25)
@given(cases() | pipelines(6), st.sampled_from([1.0, 1.1, 1.3, 2.0]))
def test_fits_wherever_it_fits_with_less_memory(case: Case, more: float) -> None:
    """An order that fits into less memory fits into more: auto must find one there too."""
    peak = prove(lower(schedule(case.costs, "1f1b"), case.costs), case.costs).peak_bytes
    tight = with_limits(case, [int(np.ceil(0.8 * value)) for value in peak]).costs
    loose = with_limits(case, [int(np.ceil(0.8 * more * value)) for value in peak]).costs
    reach("limited")
    if best_order(tight)[0].over_bytes == 0:
        reach("fits")
        assert best_order(loose)[0].over_bytes == 0


def _equal_v(
    num_devices: int, num_microbatches: int, times: tuple[float, float, float], memory: int | None, cut: int
) -> Costs:
    forward, input_grad, weight_grad = times
    profile = equal_profile(
        2 * num_devices,
        forward_s=forward,
        input_grad_s=input_grad,
        weight_grad_s=weight_grad,
        saved_bytes=1000,
        cut_bytes=cut,
    )
    cluster = one_host(num_devices, bandwidth=8000.0, memory_bytes=memory)
    made = plan(profile, cluster, num_microbatches, planner="uniform", schedule="1f1b", shape=Shape.V, num_chunks=2)
    return price(made, profile, cluster)
