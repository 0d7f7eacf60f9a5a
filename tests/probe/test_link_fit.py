"""Fits of lines to measurements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.probe.link_fit import fit_link
from tests.support.reach import reach, reaches

SIZES = (4_000_000, 2_000_000, 1_000_000)


@reaches(with_latency=0.1, without_latency=0.01, long_latency=0.03)
@given(st.floats(1e5, 1e12), st.floats(0, 1e-3), st.floats(0, 1))
def test_a_line_is_recovered(bandwidth: float, latency_s: float, part: float) -> None:
    fit = fit_link([(size, part * latency_s + size / bandwidth) for size in SIZES], latency_s)
    assert fit.bandwidth == pytest.approx(bandwidth, rel=1e-3)
    assert fit.latency_s == latency_s
    assert fit.residual < 1e-3
    reach("with_latency" if part * latency_s > 0 else "without_latency")
    reach("long_latency", part * latency_s > SIZES[-1] / bandwidth)


def test_the_constant_is_at_most_the_latency() -> None:
    # 10 ms for every message, whatever its size, and an empty one takes 100 us: that is not the link's latency.
    fit = fit_link([(size, 0.010 + size / 100e6) for size in SIZES], 1e-4)
    assert 60e6 < fit.bandwidth < 80e6
    assert fit.residual > 0.05


def test_the_constant_is_not_negative() -> None:
    fit = fit_link([(size, size / 100e6 - 0.002) for size in SIZES], 1e-4)
    assert fit.bandwidth > 100e6
    assert fit.residual > 0.01


def test_error_and_residual_by_hand() -> None:
    # Of one size: the slope that is best in relative terms for 1.0 and 1.1 s is (1/1 + 1/1.1) / (1/1 + 1/1.21).
    fit = fit_link([(1000, 1.0), (1000, 1.1)], 0.0)
    slope_s = (1 + 1 / 1.1) / (1 + 1 / 1.21)
    assert fit.bandwidth == pytest.approx(1000 / slope_s)
    left = [1.0 / slope_s - 1, 1.1 / slope_s - 1]
    assert fit.residual == pytest.approx((sum(value**2 for value in left) / 2) ** 0.5)
    assert fit.bandwidth_error > 0


def test_nothing_but_latency() -> None:
    fit = fit_link([(size, 1e-4) for size in SIZES], 1e-4)
    assert 0 < fit.bandwidth < float("inf")
