"""Calibration recovers the factors of a world that differs from the profile by them."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.calibration import Observation, calibrate
from penstock.calibration.observation import scaled
from penstock.errors import InputError
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

PROFILE = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=4, sequence=256)
CLUSTER = penstock.load_cluster("4 x T4 @ 2 GB/s")
PLANS = tuple(
    penstock.plan(PROFILE, CLUSTER, count, planner=planner, schedule="1f1b")
    for count in (2, 6)
    for planner in ("balanced", "data_parallel")
)


def observed(world: penstock.Profile, count: int) -> list[Observation]:
    return [Observation(plan, CLUSTER, Observation(plan, CLUSTER, 1.0).predicted_s(world)) for plan in PLANS[:count]]


@reaches(one=0.1, many=0.1, slower=0.1)
@examples(8)
@given(st.floats(-2, 2), st.integers(1, 3))
def test_slower_layers_are_found(log_compute: float, count: int) -> None:
    compute = math.exp(log_compute)
    found = calibrate(PROFILE, observed(scaled(PROFILE, compute, 0.0), count))
    reach("one" if count == 1 else "many")
    if compute > 1.05:
        reach("slower")
    assert [factor.name for factor in found.factors] == ["compute"]
    assert found.factors[0].value == pytest.approx(compute, rel=1e-4)
    assert max(map(abs, found.after)) < 1e-4
    assert len(found.left_out) == (0 if count == 1 else count)
    assert (found.factors[0].error is None) == (count == 1)


def test_seconds_for_bytes_are_fitted_where_they_explain_more() -> None:
    found = calibrate(PROFILE, observed(scaled(PROFILE, 1.2, 3e-10), 4))
    assert [factor.name for factor in found.factors] == ["compute", "seconds per byte"]
    assert found.factors[0].value == pytest.approx(1.2, rel=1e-3)
    assert found.factors[1].value == pytest.approx(3e-10, rel=1e-2)
    assert max(map(abs, found.left_out)) < 1e-2 < max(map(abs, found.before))
    # Two measurements do not support two factors.
    assert len(calibrate(PROFILE, observed(scaled(PROFILE, 1.2, 3e-10), 2)).factors) == 1


def test_the_profile_states_what_it_was_fitted_to() -> None:
    found = calibrate(PROFILE, observed(scaled(PROFILE, 2.0, 0.0), 1))
    note = found.profile.assumptions[-1]
    assert PROFILE.digest in note
    assert "one measured iteration: compute 2" in note
    assert found.profile.digest != PROFILE.digest
    spread = found.profile.known_spread
    assert (spread.excess, spread.iteration) == (0.0, PROFILE.known_spread.iteration)
    assert spread.reason.endswith("Calibrated: no excess.")
    kept = {name: getattr(PROFILE, name) for name in ("units", "assumptions", "spread")}
    assert msgspec.structs.replace(found.profile, **kept) == PROFILE


def test_bad_measurements_are_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        calibrate(PROFILE, [])
    for seconds in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="more than 0 seconds"):
            Observation(PLANS[0], CLUSTER, seconds)
    with pytest.raises(InputError, match="factor of 1,000"):
        calibrate(PROFILE, [Observation(PLANS[0], CLUSTER, 1e7)])
