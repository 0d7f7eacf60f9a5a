"""Auto prefers simple plans within its uncertainty where a measured profile states its spread, and only there."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.load import load_cluster
from penstock.errors import InputError
from penstock.plan import complexity_of
from penstock.planners.api import solve
from penstock.planners.auto.preference import choose
from penstock.planners.auto.search import search_plans
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from penstock.profile.spread import Spread, measured_spread
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.report.text import declined_sentence
from penstock.simulate import evaluate_costs
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

SIMPLE = SearchSpace(replication=False, two_cuts=False, virtual_stages=False)
FREE = SearchSpace(replication=False)


def _profile(seconds: list[float], spread: Spread | None) -> Profile:
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=1000,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=100, saved_bytes=1000),),
            times=(
                Times(
                    kind="cpu", micro_batch_size=1, forward_s=value, input_grad_s=value, weight_grad_s=value, step_s=0.0
                ),
            ),
        )
        for number, value in enumerate(seconds)
    )
    return Profile(name="chain", micro_batch_size=1, units=units, spread=spread)


def _measured(num_units: int, **more: float) -> Spread:
    none = [0.0] * num_units
    return msgspec.structs.replace(measured_spread(none, none, none, none), **more)


def _problem(seconds: list[float], spread: Spread | None, num_microbatches: int = 8) -> Problem:
    return Problem(_profile(seconds, spread), load_cluster("2 x cpu @ 10 GB/s"), num_microbatches, schedule="auto")


def test_a_small_gain_is_declined_and_a_large_one_is_not() -> None:
    uneven = [1.0, 1.0, 1.0, 1.0, 1.1]
    fastest = search_plans(_problem(uneven, None), search_space=FREE, work=40)
    chosen = search_plans(_problem(uneven, _measured(5)), search_space=FREE, work=40)
    assert fastest.declined == ()
    assert complexity_of(chosen.plan) <= complexity_of(fastest.plan)
    three = [1.0, 1.0, 1.0]
    measured = search_plans(_problem(three, _measured(3)), search_space=FREE, work=40)
    simple = search_plans(_problem(three, None), search_space=SIMPLE, work=40)
    assert complexity_of(measured.plan).num_remote or complexity_of(measured.plan).num_extra
    times = [evaluate_costs(item.costs, program=item.program).timeline.iteration_s for item in (measured, simple)]
    assert times[0] < times[1] / 1.08


@reaches(declined=0.1, intricate=0.1)
@examples(40)
@given(st.lists(st.sampled_from([0.5, 1.0, 1.1, 2.0]), min_size=3, max_size=6), st.sampled_from([0.0, 0.02, 0.1]))
def test_a_choice_loses_at_most_the_uncertainty(seconds: list[float], error: float) -> None:
    spread = _measured(len(seconds), stage=error, device=error, excess_virtual=0.0, excess_remote=0.0)
    problem = _problem(seconds, spread, 4)
    plain = _problem(seconds, None, 4)
    found = [search_plans(plain, search_space=space, work=10) for space in (FREE, SIMPLE)]
    times = [evaluate_costs(item.costs, program=item.program).timeline.iteration_s for item in found]
    chosen = choose(found, problem, seed=1, risk=None)
    again = choose(found, problem, seed=1, risk=None)
    assert chosen.plan == again.plan
    assert chosen.declined == again.declined
    own_s = times[[item.plan for item in found].index(chosen.plan)]
    if error == 0.0:
        assert own_s == pytest.approx(min(times), rel=1e-9)
    for item in chosen.declined:
        assert item.seconds < own_s
        # Within the uncertainty of the difference, or expected to be slower.
        assert item.judged_s * (1 + item.uncertainty) >= item.chosen_s * (1 - 1e-9)
        assert declined_sentence(item).startswith("Declined: a plan with ")
    reach("declined", chosen.declined)
    reach("intricate", complexity_of(chosen.plan) > (0, 0))


def test_without_a_measured_spread_the_fastest_plan_is_chosen() -> None:
    seconds = [1.0, 1.0, 1.0, 1.0, 1.1]
    assumed = Spread(reason="", stage=0.5, device=0.5)
    plans = [search_plans(_problem(seconds, spread), search_space=FREE, work=20).plan for spread in (None, assumed)]
    assert plans[0] == plans[1]
    judged = search_plans(_problem(seconds, assumed), search_space=FREE, work=20, risk=0.9)
    assert judged.plan.stages in {
        plans[0].stages,
        search_plans(_problem(seconds, None), search_space=SIMPLE, work=20).plan.stages,
        search_plans(
            _problem(seconds, None), search_space=SearchSpace(replication=False, two_cuts=False), work=20
        ).plan.stages,
    }


@pytest.mark.parametrize("risk", [0.0, 1.0, -1.0, float("nan")])
def test_risk_is_a_share(risk: float) -> None:
    problem = _problem([1.0, 1.0], None)
    with pytest.raises(InputError, match="risk must be between 0 and 1"):
        solve(problem.profile, problem.cluster, 4, risk=risk)
