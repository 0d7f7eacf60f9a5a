"""Planners: (profile, cluster, micro-batches) -> plan. One file a method; `PLANNERS` names them all."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.errors import InputError
from penstock.plan import Plan
from penstock.planners.auto import auto
from penstock.planners.methods import balanced, data_parallel, uniform
from penstock.planners.methods.bipartition import bipartition
from penstock.planners.methods.dapple import dapple
from penstock.planners.methods.pipedream import pipedream
from penstock.planners.methods.spp import spp
from penstock.planners.problem import Problem


class Planner(NamedTuple):
    """A method that makes plans."""

    name: str
    plan: Callable[[Problem], Plan]
    summary: str
    schedule: str = "1f1b"
    """The schedule that it plans for, if no other is asked for."""


PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {
        item.name: item
        for item in (
            Planner("uniform", uniform, "equal numbers of units, one device a stage"),
            Planner("balanced", balanced, "the slowest stage as fast as possible, one device a stage"),
            Planner("data_parallel", data_parallel, "the whole model on every device, rows split by speed"),
            Planner("pipedream", pipedream, "least bottleneck of compute, transfers and weight sync, replicated"),
            Planner("dapple", dapple, "least latency around a pivot stage, stages replicated"),
            Planner("spp", spp, "devices ordered along strong links, stages cut and replicated on them", "pe"),
            Planner("bipartition", bipartition, "forward and backward cut at different places, shipping priced"),
            Planner("auto", auto, "the best of all these, and a search from there, within memory", "auto"),
        )
    }
)


def find_planner(name: str) -> Planner:
    """The planner of that name."""
    if name not in PLANNERS:
        raise InputError(f"there is no planner {name!r}", hint=f"There are: {', '.join(PLANNERS)}.")
    return PLANNERS[name]
