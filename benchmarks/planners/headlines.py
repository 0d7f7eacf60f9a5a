"""The papers' headline figures: the largest ratios over all cases, beside the published ones."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.planners.cases import CaseRun
from benchmarks.planners.comparison import View, views
from benchmarks.results import Result

PUBLISHED_BIPARTITION = 1.9
PUBLISHED_SPP = 2.57

Seconds = Callable[[View], float | None]


class Ratio(NamedTuple):
    """The ratio of two iteration times, and its case."""

    value: float
    title: str


class Headline(NamedTuple):
    """Two methods compared over all cases in which both have a plan that fits."""

    slower: str
    faster: str
    published: float | None
    ratios: tuple[Ratio, ...]

    @property
    def largest(self) -> Ratio:
        """The largest ratio."""
        return max(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The quartiles over all cases."""
        values = [ratio.value for ratio in self.ratios]
        if len(values) == 1:
            return values[0], values[0], values[0]
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return low, median, high


def headlines(runs: Sequence[CaseRun]) -> list[Headline]:
    """All comparisons that have a case."""
    compared = [_headline(views(runs), *item) for item in _comparisons()]
    return [item for item in compared if item.ratios]


def _comparisons() -> Iterator[tuple[str, Seconds, str, Seconds, float | None, bool]]:
    straight = "PipeDream's straight pipeline, 1F1B"
    plain, any_order = _of("pipedream, straight", "1f1b"), _of("pipedream, straight")
    yield straight, plain, "Bi-Partition, 1F1B", _of("bipartition", "1f1b"), PUBLISHED_BIPARTITION, False
    yield straight, plain, "Bi-Partition, best schedule", _of("bipartition"), PUBLISHED_BIPARTITION, False
    yield "the same, best schedule", any_order, "Bi-Partition, best schedule", _of("bipartition"), None, False
    yield straight, plain, "auto, straight", _auto, PUBLISHED_BIPARTITION, False
    for faster, seconds in (("SPP", _of("spp", "pe")), ("auto", _auto)):
        yield "GPipe (even or balanced cuts)", _gpipe, faster, seconds, PUBLISHED_SPP, True
        yield "PipeDream, 1F1B", _of("pipedream", "1f1b"), faster, seconds, PUBLISHED_SPP, True
        yield "DAPPLE, 1F1B", _of("dapple", "1f1b"), faster, seconds, PUBLISHED_SPP, True
        yield "data parallelism", _of("data_parallel"), faster, seconds, PUBLISHED_SPP, True


def _of(planner: str, *schedules: str) -> Seconds:
    return lambda view: view.best(planner, *schedules)


def _auto(view: View) -> float | None:
    return view.auto.seconds if view.auto.fits else None


def _gpipe(view: View) -> float | None:
    seconds_by_cut = [view.best("uniform", "gpipe"), view.best("balanced", "gpipe")]
    return min((seconds for seconds in seconds_by_cut if seconds is not None), default=None)


def _headline(
    cases: Sequence[View],
    slower: str,
    slow: Seconds,
    faster: str,
    fast: Seconds,
    published: float | None,
    replication: bool,
) -> Headline:
    ratios = []
    for view in cases:
        if view.replication == replication:
            above, below = slow(view), fast(view)
            if above is not None and below is not None:
                ratios.append(Ratio(above / below, view.title))
    return Headline(slower, faster, published, tuple(ratios))


def check_papers(runs: Sequence[CaseRun]) -> Iterator[Result]:
    """Whether the largest ratio reaches the published figure."""
    compared = headlines(runs)
    for paper, published, faster in (
        ("Bi-Partition over PipeDream's straight pipeline", PUBLISHED_BIPARTITION, ("Bi-Partition",)),
        ("SPP over GPipe, PipeDream, DAPPLE, data parallelism", PUBLISHED_SPP, ("SPP",)),
        ("auto over PipeDream's straight pipeline", PUBLISHED_BIPARTITION, ("auto, straight",)),
    ):
        chosen = [item for item in compared if item.faster.startswith(faster) and item.published == published]
        if chosen:
            best = max((item.largest for item in chosen), key=lambda ratio: ratio.value)
            measured = f"{best.value:.2f} x"
            print(f"  {paper}: largest in {best.title}")
            yield Result(f"{paper}, largest ratio", f">= {published} x", measured, best.value >= published, True)
    for item in compared:
        if item.faster == "auto":
            print(f"  auto over {item.slower}: at most {item.largest.value:.2f} x, in {item.largest.title}")
