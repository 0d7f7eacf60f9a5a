"""The targets of the emulation benchmark, on runs with round numbers."""

import pytest

from benchmarks.emulation.emulated_runs import EmulatedRun
from benchmarks.emulation.targets import check_targets, tau


def run(method: str, predicted_s: float, *measured_s: float) -> EmulatedRun:
    return EmulatedRun("a/model", "2 x 4", 4, method, 8, 10.0, predicted_s, measured_s, ())


def test_the_median_is_what_an_iteration_takes() -> None:
    emulated = run("auto", 1.05, 0.9, 1.0, 9.0)
    assert emulated.emulated_s == 1.0
    assert emulated.error == pytest.approx(0.05)


def test_rankings() -> None:
    one, two, three = run("auto", 1.0, 1.1), run("spp", 2.0, 1.9), run("dapple", 3.0, 3.2)
    assert tau([one, two, three]) == 1.0
    # One of three pairs is discordant.
    assert tau([one, two, run("dapple", 3.0, 1.5)]) == pytest.approx(1 / 3)
    # Plans with equal predictions have no order.
    assert tau([one, run("spp", 1.001, 0.5)]) is None


def test_targets() -> None:
    runs = [run("auto", 1.0, 1.0), run("gpipe", 2.0, 2.02), run("dapple", 1.5, 1.8)]
    reached = {result.what: result.reached for result in check_targets(runs)}
    assert reached == {
        "plans emulated with sleeping devices": False,
        "error of the simulator, median": True,
        "share of plans within 10%": False,
        "ranking of plans, least Kendall tau": True,
        "auto on slow networks, emulated: least speed-up over the others": True,
    }
