"""The registry of schedules, and `schedule`, which orders a priced plan."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.errors import InputError
from penstock.names import suggest_names
from penstock.plan import Shape
from penstock.plan.pricing import Costs
from penstock.program import Program, program_of_order
from penstock.schedules.methods import auto, auto_fused, gpipe, interleaved, one_f_one_b, pe, v_half, v_min, zb_h1, zb_v
from penstock.schedules.ordering import in_turn

MAX_JOBS = 10_000_000
"""Forwards in a program; about one kilobyte each is needed to prove and simulate it."""


class Schedule(NamedTuple):
    """A method that orders the passes of a plan, and its default shape."""

    name: str
    order: Callable[[Costs], Program]
    shape: Shape
    summary: str


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        item.name: item
        for item in (
            Schedule("gpipe", gpipe, Shape.STRAIGHT, "all forwards, then all backwards"),
            Schedule("1f1b", one_f_one_b, Shape.STRAIGHT, "one forward, one backward, alternating"),
            Schedule("interleaved", interleaved, Shape.LOOP, "1F1B over several stages per device, in a loop"),
            Schedule("zb_h1", zb_h1, Shape.STRAIGHT, "1F1B with weight gradients in the bubbles"),
            Schedule("zb_v", zb_v, Shape.V, "two stages per device in a V, weight gradients in the bubbles"),
            Schedule("v_half", v_half, Shape.V, "a V with half of 1F1B's memory"),
            Schedule("v_min", v_min, Shape.V, "a V with a third of 1F1B's memory"),
            Schedule("pe", pe, Shape.STRAIGHT, "the earliest available micro-batch, backwards first"),
            Schedule("auto", auto, Shape.STRAIGHT, "the best of all these and of list scheduling, within memory"),
            Schedule("auto_fused", auto_fused, Shape.STRAIGHT, "the same with every backward fused"),
        )
    }
)


def find_schedule(name: str) -> Schedule:
    """The schedule of that name."""
    if name not in SCHEDULES:
        raise InputError(
            f"unknown schedule {name!r}", hint=suggest_names(name, SCHEDULES, label="Available schedules", most=20)
        )
    return SCHEDULES[name]


def schedule(costs: Costs, name: str | None = None) -> Program:
    """The compute program of a priced plan.

    Args:
        costs: The priced plan.
        name: The schedule to order it by. By default the plan's own order is used, or its schedule if it holds none.

    Returns:
        The compute actions of every device, in order.

    Raises:
        InputError: There is no such schedule, or the program would be too large.
    """
    if name is None and costs.plan.has_order:
        return program_of_order(costs.plan, [device.name for device in costs.cluster.devices])
    check_size(costs)
    return in_turn(find_schedule(name or costs.plan.schedule).order(costs))


def check_size(costs: Costs) -> None:
    """Reject a plan with more than `MAX_JOBS` forwards, which would not fit into memory.

    Raises:
        InputError: The plan has more than `MAX_JOBS` forwards.
    """
    num_jobs = costs.num_replicas * costs.num_microbatches
    if num_jobs > MAX_JOBS:
        raise InputError(
            f"number of forwards ({costs.num_microbatches:,} micro-batches x {costs.num_replicas:,} replicas) "
            f"exceeds the limit of {MAX_JOBS:,}",
            hint="Use fewer, larger micro-batches.",
        )
