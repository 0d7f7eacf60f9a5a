"""Auto against every other planner x schedule, and against its bound, over all cases."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.planners.cases import ANALYTIC, AutoRun, CaseRun
from benchmarks.planners.methods import METHODS, Tried
from benchmarks.results import Result

ROUNDING = 1e-9
PLANNER_NAMES = tuple(method.name for method in METHODS)


class View(NamedTuple):
    """A case with replication allowed, or without."""

    run: CaseRun
    replication: bool

    @property
    def title(self) -> str:
        """For people."""
        return self.run.title + ("" if self.replication else ", straight")

    @property
    def auto(self) -> AutoRun:
        """What auto found."""
        return self.run.replicated if self.replication else self.run.straight

    @property
    def others(self) -> list[Tried]:
        """What it is compared with: plans that fit, and without replication only planners that never replicate."""
        return [tried for tried in self.run.others if tried.fits and (self.replication or not tried.replicates)]

    @property
    def gap(self) -> float:
        """How far auto is above the bound."""
        return self.auto.seconds / self.auto.bound_s - 1

    def best(self, planner: str, *schedules: str) -> float | None:
        """The least seconds of a planner with one of these schedules, or with any; None if none fits."""
        seconds = [
            tried.seconds
            for tried in self.others
            if tried.planner == planner and (not schedules or tried.schedule in schedules)
        ]
        return min(seconds, default=None)

    @property
    def next_best(self) -> Tried | None:
        """The fastest of all others."""
        return min(self.others, key=lambda tried: tried.seconds, default=None)


def views(runs: Sequence[CaseRun]) -> list[View]:
    """Every case with and without replication."""
    return [View(run, replication) for run in runs for replication in (True, False)]


def exceptions(found: Sequence[View]) -> list[str]:
    """Where another is faster than auto, or fits and auto does not."""
    told = []
    for view in found:
        other = view.next_best
        if other is None:
            continue
        name = f"{other.planner} + {other.schedule}" + (", recomputing," if other.recompute else "")
        if not view.auto.fits:
            told.append(f"{view.title}: {name} fits into memory, auto does not")
        elif view.auto.seconds > other.seconds * (1 + ROUNDING):
            told.append(f"{view.title}: {name} is {view.auto.seconds / other.seconds - 1:.3%} faster")
    return told


def advantage(found: Sequence[View], planner: str, *schedules: str) -> list[float]:
    """How many times as long a planner takes as auto, wherever it has a plan that fits."""
    seconds = [(view.best(planner, *schedules), view.auto.seconds) for view in found]
    return [theirs / ours for theirs, ours in seconds if theirs is not None]


def geometric_mean(values: Sequence[float]) -> float:
    """As it says.

    >>> geometric_mean([1.0, 4.0])
    2.0
    """
    return math.exp(statistics.fmean(map(math.log, values)))


def against_each_other(runs: Sequence[CaseRun]) -> Iterator[Result]:
    """No exceptions; the exceptions are told."""
    found = views(runs)
    told = exceptions(found)
    for line in told:
        print(f"  {line}")
    count = sum(len(view.others) for view in found)
    what = f"auto at least as fast as each of {count:,} plans, {len(found)} cases"
    yield Result(what, "0 exceptions", f"{len(told)} exceptions", not told)
    # A search: with fewer plans to choose from it may come further in the same time. Told, and no target.
    for run in runs:
        if _is_worse(run.replicated, run.straight):
            gain = run.replicated.seconds / run.straight.seconds - 1
            print(f"  {run.title}: auto finds a plan that is {gain:.1%} faster without replication")
    for planner in PLANNER_NAMES:
        ratios = advantage(found, planner)
        if ratios:
            print(
                f"  {planner:20} with its best schedule takes {geometric_mean(ratios):.2f} x as long as auto "
                f"(geometric mean of {len(ratios)}), at most {max(ratios):.2f} x"
            )


def _is_worse(one: AutoRun, other: AutoRun) -> bool:
    """What fits is better than what does not; of two that fit, the faster."""
    return other.fits and (not one.fits or one.seconds > other.seconds * (1 + ROUNDING))


def against_bounds(runs: Sequence[CaseRun]) -> Iterator[Result]:
    """The median gaps over the published profiles, and no bound above any plan at all."""
    found = views(runs)
    published = [view for view in found if view.run.profile not in ANALYTIC]
    for where, limit, chosen in (
        ("one-host clusters", 0.05, [view for view in published if view.run.one_host]),
        ("all clusters", 0.15, published),
    ):
        gaps = [view.gap for view in chosen]
        if gaps:
            median = statistics.median(gaps)
            what = f"median gap of auto to its bound, {where}, {len(gaps)} cases"
            yield Result(what, f"<= {limit:.0%}", f"{median:.1%} (max {max(gaps):.0%})", median <= limit, True)
    above = sum(view.auto.bound_s > view.auto.seconds * (1 + ROUNDING) for view in found)
    above += sum(view.auto.bound_s > tried.seconds * (1 + ROUNDING) for view in found for tried in view.others)
    yield Result("bounds above any plan of any planner", "none", str(above), above == 0)
