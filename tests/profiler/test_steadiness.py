"""The criterion for steady measurements."""

import pytest

from penstock.profiler.steadiness import assess, deviation, spread


def test_spread_by_hand() -> None:
    # median 10, deviations 1 0 1 0 3: median 1; 1.4826 * 1 / sqrt(5) / 10
    assert spread([9, 10, 11, 10, 13]) == pytest.approx(1.4826 / 5**0.5 / 10)
    assert deviation([9, 10, 11, 10, 13]) == pytest.approx(1.4826 / 10)
    assert spread([2.0, 2.0, 2.0]) == 0
    assert spread([0.0, 0.0]) == 0


def test_more_rounds_are_steadier() -> None:
    assert spread([9, 11] * 50) == pytest.approx(spread([9, 11] * 2) / 5)


def test_units_weigh_as_much_as_they_take() -> None:
    steady, restless = [10.0] * 4, [0.1, 0.3, 0.1, 0.3]
    found = assess(["big", "small"], [[steady, restless]], seconds=3.0, tolerance=0.02)
    part = 1.4826 * 0.1 / 2 / 0.2
    assert found.worst == pytest.approx(part)
    assert found.worst_unit == "small"
    assert found.overall == pytest.approx(part * 0.2 / 10.2)
    assert found.is_steady
    assert (found.num_rounds, found.seconds) == (4, 3.0)


def test_the_least_steady_size_counts() -> None:
    steady, restless = [10.0] * 4, [8.0, 12.0, 8.0, 12.0]
    found = assess(["unit"], [[steady], [restless]], seconds=3.0, tolerance=0.02)
    assert found.overall == found.worst == pytest.approx(1.4826 * 2 / 2 / 10)
    assert not found.is_steady


def test_nothing_measurable() -> None:
    found = assess(["unit"], [[[0.0, 0.0]]], seconds=1.0, tolerance=0.02)
    assert (found.overall, found.worst) == (0, 0)
