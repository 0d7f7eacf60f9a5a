"""Showing what an engine runs today beside what would be better."""

from typing import Any

import msgspec

from penstock.cli.console import Console
from penstock.planners import Outcome
from penstock.units import show_bytes, show_percent, show_seconds


def running_data(engine: str, running: Outcome, for_engine: Outcome, unrestricted: Outcome) -> dict[str, Any]:
    """The figures as data."""
    return {
        "engine": engine,
        "running": msgspec.to_builtins(running),
        "best_for_engine": msgspec.to_builtins(for_engine),
        "best": msgspec.to_builtins(unrestricted),
    }


def show_running(
    console: Console, title: str, engine: str, running: Outcome, for_engine: Outcome, unrestricted: Outcome
) -> None:
    """Show the table, and one sentence for each better plan."""
    rows = (
        (f"running on {engine}", running),
        (f"best plan for {engine}", for_engine),
        ("best plan without its limits", unrestricted),
    )
    console.table(
        title,
        ("", "iteration", "of running", "bubble", "peak memory", ""),
        [
            (
                name,
                show_seconds(item.iteration_s),
                f"{item.iteration_s / running.iteration_s:.3f}" if running.iteration_s > 0 else "",
                show_percent(item.bubble_fraction),
                show_bytes(item.peak_bytes),
                "" if item.fits else "does not fit",
            )
            for name, item in rows
        ],
    )
    if not running.fits:
        console.show(f"What runs does not fit into memory as Penstock computes it: {running.short_of_memory}.")
    if for_engine.iteration_s < 0.9995 * running.iteration_s:
        saved = 1 - for_engine.iteration_s / running.iteration_s
        console.show(f"{engine} can run a plan that takes {show_percent(saved)} less time.")
    else:
        console.show(f"No plan was found that {engine} can run in less time.")
