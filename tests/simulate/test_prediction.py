"""Predicted intervals: equal with and without compiled code, and as wide as the errors that they are made from."""

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock.cluster.load import load_cluster
from penstock.plan.pricing.pricing import price
from penstock.planners.methods.balanced import balanced
from penstock.planners.problem import Problem
from penstock.profile.load import load_profile
from penstock.profile.spread import Spread, measured_spread
from penstock.profile.types import Profile
from penstock.program.proof.proof import Proof, prove
from penstock.simulate import Prediction, evaluate_costs, predict, predict_plainly
from penstock.simulate.draws import cause_factors, noise_factors
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


@reaches(message=0.3, shared_interface=0.05, layers=0.3)
@examples(80)
@given(cases())
def test_equal_to_the_bit_without_compiled_code(case: Case) -> None:
    num = case.profile.num_units
    is_measured = num % 2 == 0
    parts = [[0.01 * (index + part) for index in range(num)] for part in range(4)]
    spread = measured_spread(*parts) if is_measured else Spread(reason="", device=0.1, stage=0.3, link=2.0, action=0.2)
    profile = msgspec.structs.replace(case.profile, spread=spread)
    costs = case.costs
    proof = prove(case.lowered(costs), costs)
    compiled, plain = (make(proof, profile, seed=num, num_samples=3) for make in (predict, predict_plainly))
    assert np.array_equal(compiled.samples_s, plain.samples_s)
    assert compiled.simulated_s == plain.simulated_s == evaluate_costs(costs).timeline.iteration_s
    assert compiled.interval == plain.interval
    reach("message", proof.num_messages)
    reach("shared_interface", len(proof.dependencies.interface_s))
    reach("layers", is_measured)


def _case(spread: Spread, *, cluster: str = "2 x T4 @ 10 GB/s", num_microbatches: int = 32) -> tuple[Proof, Profile]:
    profile = msgspec.structs.replace(load_profile("gpt2", kinds=["T4"]), spread=spread)
    problem = Problem(profile, load_cluster(cluster), num_microbatches)
    return evaluate_costs(price(balanced(problem), profile, problem.cluster)).proof, profile


def _deviation(prediction: Prediction) -> float:
    return float(prediction.samples_s.std() / prediction.samples_s.mean())


def test_without_errors_the_interval_is_the_simulation() -> None:
    prediction = predict(*_case(Spread(reason="none")))
    assert prediction.samples_s == pytest.approx(prediction.simulated_s)
    assert prediction.interval.low_s == pytest.approx(prediction.interval.high_s)


def test_noise_of_actions_averages_out_and_errors_of_devices_do_not() -> None:
    alone = "1 x T4"
    noise = _deviation(predict(*_case(Spread(reason="", action=0.1), cluster=alone, num_microbatches=100)))
    assert noise < 0.1 / 8
    for error in (Spread(reason="", device=0.1), Spread(reason="", stage=0.1)):
        assert _deviation(predict(*_case(error, cluster=alone))) > 0.06
    # With several devices, an iteration waits for the slowest: it takes longer than without errors.
    assert (
        predict(*_case(Spread(reason="", device=0.1))).expected_s > 1.01 * predict(*_case(Spread(reason=""))).expected_s
    )


def test_common_errors_widen_the_interval_and_excess_moves_it() -> None:
    plain, common, late = (
        predict(*_case(Spread(reason="", device=0.02, iteration=iteration, excess=excess)))
        for iteration, excess in ((0.0, 0.0), (0.1, 0.0), (0.0, 0.05))
    )
    assert np.array_equal(plain.samples_s, common.samples_s)
    assert common.interval.low_s < plain.interval.low_s < plain.interval.high_s < common.interval.high_s
    assert late.expected_s == pytest.approx(1.05 * plain.expected_s)
    assert late.quantile(0.3) == pytest.approx(1.05 * plain.quantile(0.3))
    assert plain.quantile(0.2) < plain.quantile(0.5) < plain.quantile(0.9)


def test_a_seed_determines_a_prediction_and_few_samples_suffice() -> None:
    proof, profile = _case(load_profile("gpt2", kinds=["T4"]).known_spread)
    many = predict(proof, profile).interval
    assert many == predict(proof, profile).interval
    for seed in range(5):
        few = predict(proof, profile, seed=seed, num_samples=20).interval
        assert few != many
        assert few.low_s == pytest.approx(many.low_s, rel=0.01)
        assert few.high_s == pytest.approx(many.high_s, rel=0.01)


def test_factors_of_a_cause_depend_on_its_name_only() -> None:
    together, alone = (cause_factors(7, [np.array(names)], 0.1, 20) for names in ([1, 2, 3], [2]))
    assert np.array_equal(together[:, 1], alone[:, 0])
    assert together.mean(axis=0) == pytest.approx(1)
    assert np.log(together).std(axis=0) == pytest.approx(0.1)
    assert not np.array_equal(together[:, 0], together[:, 1])
    assert not np.array_equal(together, cause_factors(8, [np.array([1, 2, 3])], 0.1, 20))
    noise = noise_factors(7, 3, np.full(10_000, 0.2))
    assert noise.mean() == pytest.approx(1, abs=0.02)
    assert noise.std() == pytest.approx(0.2, abs=0.02)
