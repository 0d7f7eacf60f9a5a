"""Showing what staying with an engine costs."""

from typing import Any, NamedTuple

from penstock.cli.console import Console
from penstock.units import show_percent, show_seconds


class EngineCost(NamedTuple):
    """The iteration times of the best plan for an engine, and of the best plan without its limits.

    Attributes:
        name: The name of the engine.
        title: The engine's own name.
        seconds: Of the plan for the engine.
        unrestricted_s: Of the plan without its limits; None if that does not fit into memory.
    """

    name: str
    title: str
    seconds: float
    unrestricted_s: float | None


def engine_data(cost: EngineCost | None) -> dict[str, Any]:
    """The cost as data; empty without an engine."""
    return {} if cost is None else {"engine": {"name": cost.name, "unrestricted_iteration_s": cost.unrestricted_s}}


def show_engine_cost(console: Console, cost: EngineCost | None) -> None:
    """Show the cost in one sentence."""
    if cost is None or not cost.unrestricted_s:
        return
    ratio = cost.seconds / cost.unrestricted_s - 1
    if ratio < 0.0005:
        console.show(f"Staying with {cost.title} costs no time: no faster plan was found without its limits.")
        return
    console.show(
        f"Staying with {cost.title} costs {show_percent(ratio)}: without its limits, the best plan found takes "
        f"{show_seconds(cost.unrestricted_s)}."
    )
