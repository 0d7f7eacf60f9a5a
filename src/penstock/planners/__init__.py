"""Planners: (profile, cluster, micro-batches) -> plan. One file a method; `PLANNERS` names them all."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.errors import InputError
from penstock.plan.types import Plan
from penstock.planners.balanced import balanced
from penstock.planners.data_parallel import data_parallel
from penstock.planners.problem import Problem
from penstock.planners.uniform import uniform


class Planner(NamedTuple):
    """A method that makes plans."""

    name: str
    plan: Callable[[Problem], Plan]
    summary: str


PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {
        item.name: item
        for item in (
            Planner("uniform", uniform, "equal numbers of units, one device a stage"),
            Planner("balanced", balanced, "the slowest stage as fast as possible, one device a stage"),
            Planner("data_parallel", data_parallel, "the whole model on every device, rows split by speed"),
        )
    }
)


def find_planner(name: str) -> Planner:
    """The planner of that name."""
    if name not in PLANNERS:
        raise InputError(f"there is no planner {name!r}", hint=f"There are: {', '.join(PLANNERS)}.")
    return PLANNERS[name]
