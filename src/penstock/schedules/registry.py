"""Schedules: plan -> program. One file a method; `SCHEDULES` names them all."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.errors import InputError
from penstock.plan import Shape
from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.schedules.methods import auto, auto_whole, gpipe, interleaved, one_f_one_b, pe, zb_h1, zb_v
from penstock.schedules.ordering import in_turn

MAX_JOBS = 10_000_000
"""Forwards in a program; about one kilobyte each is needed to prove and simulate it."""


class Schedule(NamedTuple):
    """A method that orders the jobs of a plan, and the shape of plan that it is made for."""

    name: str
    order: Callable[[Costs], Program]
    shape: Shape
    summary: str


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        item.name: item
        for item in (
            Schedule("gpipe", gpipe, Shape.STRAIGHT, "all forwards, then all backwards"),
            Schedule("1f1b", one_f_one_b, Shape.STRAIGHT, "one forward, one backward, in turn"),
            Schedule("interleaved", interleaved, Shape.LOOP, "1F1B over several stages a device, in a loop"),
            Schedule("zb_h1", zb_h1, Shape.STRAIGHT, "1F1B with weight gradients filling the waits"),
            Schedule("zb_v", zb_v, Shape.V, "two stages a device in a V, weight gradients filling the waits"),
            Schedule("pe", pe, Shape.STRAIGHT, "the earliest micro-batch that is there, backwards first"),
            Schedule("auto", auto, Shape.STRAIGHT, "the best of all these and of list scheduling, within memory"),
            Schedule("auto_whole", auto_whole, Shape.STRAIGHT, "the same with every backward left whole"),
        )
    }
)


def find_schedule(name: str) -> Schedule:
    """The schedule of that name."""
    if name not in SCHEDULES:
        raise InputError(f"there is no schedule {name!r}", hint=f"There are: {', '.join(SCHEDULES)}.")
    return SCHEDULES[name]


def schedule(costs: Costs, name: str | None = None) -> Program:
    """The compute program of a plan, by the schedule that it names unless another is given."""
    found = find_schedule(name or costs.plan.schedule)
    num_jobs = costs.num_replicas * costs.num_microbatches
    if num_jobs > MAX_JOBS:
        raise InputError(
            f"{costs.num_microbatches:,} micro-batches on {costs.num_replicas:,} places are {num_jobs:,} forwards: "
            f"more than the {MAX_JOBS:,} that fit into memory",
            hint="Use fewer micro-batches, with more rows each.",
        )
    return in_turn(found.order(costs))
