"""Data parallelism: shares by speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.planners.api import plan
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.reach import reach, reaches


def shares(speeds: list[float], seconds: float = 1.0, num_stages: int | None = None) -> list[float]:
    profile = profile_of([(seconds, seconds, seconds)] * 2)
    result = plan(profile, cluster_of(speeds), 3, planner="data_parallel", pipeline_depth=num_stages)
    (stage,) = result.stages
    assert (stage.start, stage.stop) == (0, 2)
    assert stage.forward == stage.backward
    assert [replica.device for replica in stage.forward] == [f"d{index}" for index in range(len(stage.forward))]
    return [replica.share for replica in stage.forward]


def test_by_hand() -> None:
    assert shares([1.0, 2.0, 1.0]) == [0.25, 0.5, 0.25]
    assert shares([1.0] * 3) == [1 / 3] * 3
    assert shares([4.0]) == [1.0]


def test_only_some_devices() -> None:
    assert shares([1.0, 1.0, 9.0], num_stages=2) == [0.5, 0.5]


def test_nothing_takes_time() -> None:
    assert shares([1.0, 3.0], seconds=0.0) == [0.5, 0.5]


@reaches(several=0.1, unequal=0.1)
@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=9))
def test_in_proportion(speeds: list[float]) -> None:
    result = shares(speeds)
    assert sum(result) == pytest.approx(1, abs=1e-12)
    assert result == pytest.approx([speed / sum(speeds) for speed in speeds], rel=1e-9)
    reach("several", len(speeds) > 2)
    reach("unequal", max(speeds) > 2 * min(speeds))


@pytest.mark.parametrize("speeds", [[1.0, 1e-12], [1e-300, 1e300], [1.0, 1e308]])
def test_a_device_without_rows_is_refused(speeds: list[float]) -> None:
    with pytest.raises(InputError, match="too slow to get any rows"):
        shares(speeds)
