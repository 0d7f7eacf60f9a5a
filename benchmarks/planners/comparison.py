"""`auto` against every other planner x schedule and against its lower bound, over all cases."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.planners.cases import ANALYTIC, AutoRun, CaseRun
from benchmarks.planners.methods import METHODS, TriedPlan
from benchmarks.results import Result

ROUNDING = 1e-9
PLANNER_NAMES = tuple(method.name for method in METHODS)


class View(NamedTuple):
    """A case with replication allowed, or without."""

    run: CaseRun
    replication: bool

    @property
    def title(self) -> str:
        """The name in tables and messages."""
        return self.run.title + ("" if self.replication else ", straight")

    @property
    def auto(self) -> AutoRun:
        """The plan of `auto`."""
        return self.run.replicated if self.replication else self.run.straight

    @property
    def others(self) -> list[TriedPlan]:
        """The plans for comparison: those that fit; without replication only of planners that never replicate."""
        return [tried for tried in self.run.others if tried.fits and (self.replication or not tried.replicates)]

    @property
    def gap(self) -> float:
        """The gap of `auto` to its bound."""
        return self.auto.seconds / self.auto.bound_s - 1

    def best(self, planner: str, *schedules: str) -> float | None:
        """A planner's shortest iteration with one of these schedules (default: any); None if no plan fits."""
        seconds = [
            tried.seconds
            for tried in self.others
            if tried.planner == planner and (not schedules or tried.schedule in schedules)
        ]
        return min(seconds, default=None)

    @property
    def next_best(self) -> TriedPlan | None:
        """The fastest plan of all others."""
        return min(self.others, key=lambda tried: tried.seconds, default=None)


def views(runs: Sequence[CaseRun]) -> list[View]:
    """Every case with and without replication."""
    return [View(run, replication) for run in runs for replication in (True, False)]


def exceptions(cases: Sequence[View]) -> list[str]:
    """Cases in which another plan is faster than that of `auto`, or fits while `auto` does not."""
    lines = []
    for view in cases:
        other = view.next_best
        if other is None:
            continue
        name = f"{other.planner} + {other.schedule}" + (", recomputing," if other.recompute else "")
        if not view.auto.fits:
            lines.append(f"{view.title}: {name} fits into memory, auto does not")
        elif view.auto.seconds > other.seconds * (1 + ROUNDING):
            lines.append(f"{view.title}: {name} is {view.auto.seconds / other.seconds - 1:.3%} faster")
    return lines


def advantage(cases: Sequence[View], planner: str, *schedules: str) -> list[float]:
    """Ratios of a planner's iteration time to that of `auto`, over the cases in which its plan fits."""
    seconds = [(view.best(planner, *schedules), view.auto.seconds) for view in cases]
    return [theirs / ours for theirs, ours in seconds if theirs is not None]


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean.
    >>> geometric_mean([1.0, 4.0])
    2.0
    """
    return math.exp(statistics.fmean(map(math.log, values)))


def check_advantage(runs: Sequence[CaseRun]) -> Iterator[Result]:
    """`auto` is the fastest in every case; exceptions are printed."""
    cases = views(runs)
    lines = exceptions(cases)
    for line in lines:
        print(f"  {line}")
    count = sum(len(view.others) for view in cases)
    what = f"auto at least as fast as each of {count:,} plans, {len(cases)} cases"
    yield Result(what, "0 exceptions", f"{len(lines)} exceptions", not lines)
    # `auto` is a search: in a smaller space it may come further in the same time. Printed, but not a target.
    for run in runs:
        if _is_worse(run.replicated, run.straight):
            gain = run.replicated.seconds / run.straight.seconds - 1
            print(f"  {run.title}: auto finds a plan that is {gain:.1%} faster without replication")
    for planner in PLANNER_NAMES:
        ratios = advantage(cases, planner)
        if ratios:
            print(
                f"  {planner:20} with its best schedule takes {geometric_mean(ratios):.2f} x as long as auto "
                f"(geometric mean of {len(ratios)}), at most {max(ratios):.2f} x"
            )


def _is_worse(one: AutoRun, other: AutoRun) -> bool:
    """Whether the other plan is better: a plan that fits beats one that does not, then the faster one wins."""
    return other.fits and (not one.fits or one.seconds > other.seconds * (1 + ROUNDING))


def check_bounds(runs: Sequence[CaseRun]) -> Iterator[Result]:
    """The median gaps over the published profiles; no bound is above any plan."""
    cases = views(runs)
    published = [view for view in cases if view.run.profile not in ANALYTIC]
    for where, limit, chosen in (
        ("one-host clusters", 0.05, [view for view in published if view.run.one_host]),
        ("all clusters", 0.15, published),
    ):
        gaps = [view.gap for view in chosen]
        if gaps:
            median = statistics.median(gaps)
            what = f"median gap of auto to its bound, {where}, {len(gaps)} cases"
            yield Result(what, f"<= {limit:.0%}", f"{median:.1%} (max {max(gaps):.0%})", median <= limit, True)
    above = sum(view.auto.bound_s > view.auto.seconds * (1 + ROUNDING) for view in cases)
    above += sum(view.auto.bound_s > tried.seconds * (1 + ROUNDING) for view in cases for tried in view.others)
    yield Result("bounds above any plan of any planner", "none", str(above), above == 0)
