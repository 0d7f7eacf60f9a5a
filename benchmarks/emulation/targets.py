"""Targets: the simulator's error, its ranking of plans, and the gain of `auto`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from benchmarks.emulation.cases import SLOW_NETWORKS, Problem
from benchmarks.emulation.emulated_runs import EmulatedRun
from benchmarks.results import Result

MEDIAN_ERROR = 0.05
MAX_ERROR = 0.10
MAX_SHARE = 0.95
MIN_TAU = 0.9
NUM_PLANS = 40
SAME = 0.01
"""Plans with predicted times that differ by less than this have no order."""

BASELINES = ("gpipe", "pipedream", "dapple", "data_parallel")


def by_problem(runs: Iterable[EmulatedRun]) -> dict[Problem, dict[str, EmulatedRun]]:
    """Runs by problem and method."""
    by_method: dict[Problem, dict[str, EmulatedRun]] = {}
    for run in runs:
        by_method.setdefault(run.case.problem, {})[run.method] = run
    return by_method


def tau(runs: Sequence[EmulatedRun]) -> float | None:
    """Kendall's tau: (concordant - discordant pairs) / pairs with an order; None if no pair has an order."""
    agreeing = disagreeing = 0
    for one, other in combinations(runs, 2):
        if abs(one.predicted_s / other.predicted_s - 1) <= SAME:
            continue
        if (one.predicted_s < other.predicted_s) == (one.emulated_s < other.emulated_s):
            agreeing += 1
        else:
            disagreeing += 1
    pairs = agreeing + disagreeing
    return (agreeing - disagreeing) / pairs if pairs else None


def check_targets(runs: Sequence[EmulatedRun]) -> Iterator[Result]:
    """One result per target."""
    errors = np.abs([run.error for run in runs])
    yield Result(
        "plans emulated with sleeping devices", f">= {NUM_PLANS}", str(len(runs)), len(runs) >= NUM_PLANS, True
    )
    middle = float(np.median(errors))
    yield Result("error of the simulator, median", f"<= {MEDIAN_ERROR:.0%}", f"{middle:.1%}", middle <= MEDIAN_ERROR)
    near = float(np.mean(errors <= MAX_ERROR))
    yield Result(
        f"share of plans within {MAX_ERROR:.0%}",
        f">= {MAX_SHARE:.0%}",
        f"{near:.0%}, worst {errors.max():.1%}",
        near >= MAX_SHARE,
        True,
    )
    taus = {problem: tau(list(by_method.values())) for problem, by_method in by_problem(runs).items()}
    known = {problem: value for problem, value in taus.items() if value is not None}
    worst = min(known, key=known.__getitem__, default=None)
    if worst is not None:
        text = f"{known[worst]:.2f} ({worst.title})"
        yield Result("ranking of plans, least Kendall tau", f">= {MIN_TAU}", text, known[worst] >= MIN_TAU, True)
    yield from _auto_wins(runs)


def _auto_wins(runs: Sequence[EmulatedRun]) -> Iterator[Result]:
    gains = [
        (by_method[baseline].emulated_s / by_method["auto"].emulated_s, problem, baseline)
        for problem, by_method in by_problem(runs).items()
        if problem.cluster in SLOW_NETWORKS and "auto" in by_method
        for baseline in BASELINES
        if baseline in by_method
    ]
    if gains:
        least, problem, baseline = min(gains)
        text = f"{least:.2f} x ({baseline}, {problem.title})"
        yield Result("auto on slow networks, emulated: least speed-up over the others", "> 1", text, least > 1, True)
