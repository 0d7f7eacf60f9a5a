"""Showing a comparison of planners and schedules."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.cli.console import Console
from penstock.planners.bounds import Bound
from penstock.planners.studies import Entry, iteration_ratios
from penstock.units import show_bytes, show_percent, show_range, show_seconds


def comparison_data(results: Sequence[Entry], single_s: float, bound: Bound) -> dict[str, Any]:
    """The figures as data."""
    return {
        "one_device_s": single_s,
        "bound_s": bound.seconds,
        "plans": [
            {
                "planner": entry.planner,
                "schedule": entry.schedule,
                **msgspec.to_builtins(entry.outcome),
                "speed_up": single_s / entry.outcome.iteration_s if entry.outcome.iteration_s > 0 else None,
                "gap": entry.outcome.iteration_s / bound.seconds - 1 if bound.seconds > 0 else None,
                "planning_s": entry.planning_s,
            }
            for entry in results
        ],
        "ratios": [item._asdict() for item in iteration_ratios(results)],
    }


def show_comparison(console: Console, title: str, results: Sequence[Entry], single_s: float, bound: Bound) -> None:
    """Show the table of all plans, and the ratios between planners."""
    console.table(
        title,
        (
            "planner",
            "schedule",
            "iteration",
            "speed-up",
            "over bound",
            "bubble",
            "peak memory",
            "traffic",
            "planning",
            "",
            "",
        ),
        [_cells(entry, single_s, bound) for entry in results],
        left=2,
    )
    console.show(
        f"speed-up: over one device without memory limit, {show_seconds(single_s)}; "
        f"over bound: above the lower bound of {show_seconds(bound.seconds)} ({bound.reason})"
    )
    table = iteration_ratios(results)
    names = [item.planner for item in table]
    if len(table) > 1 and all(set(item.times_as_long_as) == set(names) for item in table):
        console.show("")
        console.table(
            "iteration time of the row divided by that of the column, each planner with its best schedule that fits",
            ("planner", "schedule", *names),
            [
                (item.planner, item.schedule, *(f"{item.times_as_long_as[name]:.2f}" for name in names))
                for item in table
            ],
            left=2,
        )


def _cells(entry: Entry, single_s: float, bound: Bound) -> tuple[str, ...]:
    out = entry.outcome
    return (
        entry.planner,
        entry.schedule,
        show_seconds(out.iteration_s)
        if out.interval is None
        else show_range(out.iteration_s, out.interval.low_s, out.interval.high_s),
        f"{single_s / out.iteration_s:.2f} x" if out.iteration_s > 0 else "",
        show_percent(out.iteration_s / bound.seconds - 1) if bound.seconds > 0 else "",
        show_percent(out.bubble_fraction),
        show_bytes(out.peak_bytes),
        show_bytes(out.traffic_bytes),
        show_seconds(entry.planning_s),
        "" if out.fits else "does not fit",
        "" if out.whole_rows else "splits rows",
    )
