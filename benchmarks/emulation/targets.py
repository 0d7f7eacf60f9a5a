"""The targets: how near the simulator is, whether it ranks plans as they are, and what auto gains."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from benchmarks.emulation.cases import SLOW_NETWORKS, Problem
from benchmarks.emulation.emulated_runs import EmulatedRun
from benchmarks.results import Result

MEDIAN_ERROR = 0.05
MOST_ERROR = 0.10
MOST_SHARE = 0.95
LEAST_TAU = 0.9
NUM_PLANS = 40
SAME = 0.01
"""Plans that the simulator holds for equal to within this have no order that could be wrong."""

RIVALS = ("gpipe", "pipedream", "dapple", "data_parallel")


def by_problem(runs: Iterable[EmulatedRun]) -> dict[Problem, dict[str, EmulatedRun]]:
    """Runs by problem and method."""
    found: dict[Problem, dict[str, EmulatedRun]] = {}
    for run in runs:
        found.setdefault(run.case.problem, {})[run.method] = run
    return found


def tau(runs: Sequence[EmulatedRun]) -> float | None:
    """Kendall's: agreeing less disagreeing pairs, over all pairs that have an order; None if no pair has."""
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


def against_targets(runs: Sequence[EmulatedRun]) -> Iterator[Result]:
    """One line a target."""
    errors = np.abs([run.error for run in runs])
    yield Result(
        "plans emulated with sleeping devices", f">= {NUM_PLANS}", str(len(runs)), len(runs) >= NUM_PLANS, True
    )
    middle = float(np.median(errors))
    yield Result("error of the simulator, median", f"<= {MEDIAN_ERROR:.0%}", f"{middle:.1%}", middle <= MEDIAN_ERROR)
    near = float(np.mean(errors <= MOST_ERROR))
    yield Result(
        f"share of plans within {MOST_ERROR:.0%}",
        f">= {MOST_SHARE:.0%}",
        f"{near:.0%}, worst {errors.max():.1%}",
        near >= MOST_SHARE,
        True,
    )
    taus = {problem: tau(list(found.values())) for problem, found in by_problem(runs).items()}
    known = {problem: value for problem, value in taus.items() if value is not None}
    worst = min(known, key=known.__getitem__, default=None)
    if worst is not None:
        text = f"{known[worst]:.2f} ({worst.title})"
        yield Result("ranking of plans, least Kendall tau", f">= {LEAST_TAU}", text, known[worst] >= LEAST_TAU, True)
    yield from _auto_wins(runs)


def _auto_wins(runs: Sequence[EmulatedRun]) -> Iterator[Result]:
    gains = [
        (found[baseline].emulated_s / found["auto"].emulated_s, problem, baseline)
        for problem, found in by_problem(runs).items()
        if problem.cluster in SLOW_NETWORKS and "auto" in found
        for baseline in RIVALS
        if baseline in found
    ]
    if gains:
        least, problem, baseline = min(gains)
        text = f"{least:.2f} x ({baseline}, {problem.title})"
        yield Result("auto on slow networks, emulated: least speed-up over the others", "> 1", text, least > 1, True)
