"""The tables of the README in Markdown, from the records."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from benchmarks.planners.cases import ANALYTIC, CaseRun
from benchmarks.planners.clusters import CLUSTERS
from benchmarks.planners.comparison import PLANNER_NAMES, View, advantage, exceptions, geometric_mean, views
from benchmarks.planners.growth import PointRun, exponent
from benchmarks.planners.headlines import headlines
from benchmarks.planners.iteration_parts import describe_parts
from benchmarks.planners.methods import TriedPlan
from benchmarks.planners.small_cases import SmallRun
from benchmarks.planners.speed import TimedRun
from penstock.schedules import SCHEDULES
from penstock.units import show_seconds

NUM_WIDEST = 10
BARS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, float("inf"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, num_texts: int = 0) -> str:
    """A Markdown table. The first column and the last `num_texts` are left-aligned, the others right-aligned."""
    num_numbers = len(head) - 1 - num_texts
    lines = [head, ["---", *["---:"] * num_numbers, *["---"] * num_texts], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def case_tables(runs: Sequence[CaseRun]) -> Iterator[str]:
    """`auto` against the others, the headlines, the gaps."""
    cases = views(runs)
    exception_lines = exceptions(cases)
    yield f"### Auto against every other planner x schedule\n\n{len(cases)} cases, {len(exception_lines)} exceptions."
    if exception_lines:
        yield "\n".join(f"- {line}" for line in exception_lines)
    for replication, title in ((True, "With replication allowed"), (False, "Straight pipelines")):
        yield _advantages([view for view in cases if view.replication == replication], title)
    yield "The best other planner x schedule over auto, median over the numbers of micro-batches, with replication:"
    yield _by_profile([view for view in cases if view.replication])
    yield "The same for straight pipelines:"
    yield _by_profile([view for view in cases if not view.replication])
    yield "The analytic profiles, for which only plans that fit into memory count:"
    yield _computed([view for view in cases if view.run.profile in ANALYTIC])
    yield f"### The papers' headlines\n\n{_headlines(runs)}"
    yield f"### The gap between auto and its bound\n\n{_gaps(cases)}"
    yield f"```text\n{histogram([view.gap for view in cases])}\n```"
    yield f"The {NUM_WIDEST} widest gaps, with the parts of the iteration:"
    yield _widest(cases)


def _advantages(cases: Sequence[View], title: str) -> str:
    def cell(ratios: list[float]) -> str:
        return f"{geometric_mean(ratios):.2f}" if ratios else "-"

    rows = []
    for planner in PLANNER_NAMES:
        best = advantage(cases, planner)
        if best:
            by_schedule = [cell(advantage(cases, planner, name)) for name in SCHEDULES]
            spread = [f"{geometric_mean(best):.2f}", f"{statistics.median(best):.2f}", f"{max(best):.2f}"]
            rows.append([planner, *by_schedule, *spread])
    head = [f"{title}: x auto", *SCHEDULES, "best of these", "its median", "its most"]
    return table(head, rows)


def _computed(cases: Sequence[View]) -> str:
    rows = []
    for view in cases:
        other, auto = view.next_best, view.auto
        fitting = f"{len(view.others)} of {sum(view.replication or not tried.replicates for tried in view.run.others)}"
        ratio, name = (f"{other.seconds / auto.seconds:.3f}", _name(other)) if other else ("-", "none fits")
        seconds = show_seconds(auto.seconds) if auto.fits else "does not fit"
        rows.append([view.title, seconds, f"{view.gap:.0%}", fitting, ratio, name])
    return table(["case", "auto", "over its bound", "others that fit", "best of them", "which is"], rows, num_texts=1)


def _name(tried: TriedPlan) -> str:
    return f"{tried.planner} + {tried.schedule}" + (", recomputing" if tried.recompute else "")


def _by_profile(cases: Sequence[View]) -> str:
    clusters = [cluster for cluster in CLUSTERS if any(view.run.cluster == cluster for view in cases)]
    rows = []
    for profile in dict.fromkeys(view.run.profile for view in cases if view.run.profile not in ANALYTIC):
        cells = []
        for cluster in clusters:
            ratios = [
                view.next_best.seconds / view.auto.seconds
                for view in cases
                if (view.run.profile, view.run.cluster) == (profile, cluster) and view.next_best is not None
            ]
            cells.append(f"{statistics.median(ratios):.3f}" if ratios else "")
        rows.append([profile, *cells])
    return table(["profile", *clusters], rows)


def _headlines(runs: Sequence[CaseRun]) -> str:
    rows = []
    for item in headlines(runs):
        low, median, high = item.quartiles
        published = f"{item.published:.2f}" if item.published else "-"
        numbers = [f"{item.largest.value:.2f}", f"{low:.2f}", f"{median:.2f}", f"{high:.2f}"]
        rows.append([f"{item.slower} over {item.faster}", published, *numbers, item.largest.title])
    return table(
        ["ratio", "published", "largest", "quarter", "median", "three quarters", "largest in"], rows, num_texts=1
    )


def _gaps(cases: Sequence[View]) -> str:
    published = [view for view in cases if view.run.profile not in ANALYTIC]
    groups = {
        "published profiles": published,
        "of these on one host": [view for view in published if view.run.one_host],
    }
    groups |= {"analytic profiles": [view for view in cases if view.run.profile in ANALYTIC]}
    groups |= {"replicated": [view for view in cases if view.replication]}
    groups |= {"straight": [view for view in cases if not view.replication]}
    for num in sorted({view.run.num_microbatches for view in cases}):
        groups[f"M = {num}"] = [view for view in cases if view.run.num_microbatches == num]
    for cluster in CLUSTERS:
        groups[cluster] = [view for view in cases if view.run.cluster == cluster]
    rows = []
    for name, chosen in groups.items():
        if chosen:
            values = np.quantile([view.gap for view in chosen], (0.1, 0.25, 0.5, 0.75, 0.9, 1.0))
            rows.append([name, str(len(chosen)), *(f"{value:.1%}" for value in values)])
    return table(["cases", "number", "10 %", "25 %", "median", "75 %", "90 %", "most"], rows)


def histogram(gaps: Sequence[float]) -> str:
    """A histogram of gaps, as text."""
    lines = []
    for low, high in pairwise(BARS):
        # A gap that rounding makes negative belongs to the first bar.
        count = sum((low <= gap or low == 0) and gap < high for gap in gaps)
        upper = "more" if high == float("inf") else f"{high:.0%}"
        lines.append(f"{low:5.0%} to {upper:>5}  {count:4}  {'#' * round(60 * count / len(gaps))}".rstrip())
    return "\n".join(lines)


def _widest(cases: Sequence[View]) -> str:
    rows = []
    for view in sorted(cases, key=lambda view: -view.gap)[:NUM_WIDEST]:
        auto = view.auto
        rows.append([view.title, f"{view.gap:.0%}", auto.bound_by, describe_parts(auto.parts)])
    return table(["case", "gap", "the bound counts", "the plan"], rows, num_texts=2)


def small_table(runs: Sequence[SmallRun]) -> str:
    """Small cases by size."""
    rows = []
    for size in dict.fromkeys(run.size for run in runs):
        chosen = [run for run in runs if run.size == size]
        ratios = [run.auto_s / run.exact_s for run in chosen if run.proved]
        if not ratios:
            continue
        bounds = [run.straight_bound_s / run.exact_s for run in chosen if run.proved]
        rows.append(
            [
                size,
                f"{len(ratios)} of {len(chosen)}",
                f"{sum(ratio <= 1.01 for ratio in ratios) / len(ratios):.0%}",
                f"{sum(ratio <= 1.05 for ratio in ratios) / len(ratios):.0%}",
                f"{max(ratios) - 1:+.1%}",
                f"{sum(ratio < 1 - 1e-6 for ratio in ratios)} (by up to {1 - min(ratios):.1%})",
                f"{statistics.median(bounds):.0%} (most {max(bounds):.1%})",
                f"{statistics.median(run.exact_took_s for run in chosen):.1f} s",
                f"{statistics.median(run.auto_took_s for run in chosen):.1f} s",
            ]
        )
    head = [
        "size",
        "proved",
        "within 1 %",
        "within 5 %",
        "worst",
        "auto faster",
        "bound / exact",
        "exact takes",
        "auto",
    ]
    return table(head, rows)


def speed_table(runs: Sequence[TimedRun]) -> str:
    """Planning times beside their limits."""
    rows = [
        [
            f"{run.planner}: {run.profile}, {run.num_devices} devices, M = {run.num_microbatches}",
            show_seconds(run.median_s),
            f"{show_seconds(min(run.seconds))} to {show_seconds(max(run.seconds))}",
            f"{run.limit_s:g} s",
        ]
        for run in runs
    ]
    return table(["planner and problem", "median", "range", "target"], rows)


def growth_tables(runs: Sequence[PointRun]) -> Iterator[str]:
    """Planning times as one size grows, with the exponent of a power law."""
    for axis in dict.fromkeys(run.axis for run in runs):
        sizes = sorted({run.size for run in runs if run.axis == axis})
        rows = []
        for planner in dict.fromkeys(run.planner for run in runs):
            known = {run.size: run for run in runs if (run.planner, run.axis) == (planner, axis)}
            cells = [show_seconds(known[size].seconds) if size in known else "" for size in sizes]
            power = f"{exponent(list(known.values())):.2f}" if len(known) > 1 else ""
            rows.append([planner, *cells, power])
        yield table([axis, *map(str, sizes), "exponent"], rows)
