"""The registry of planners. Each maps a `Problem` to a `Plan`; `PLANNERS` lists all of them by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.errors import InputError
from penstock.names import suggest_names
from penstock.plan import Plan
from penstock.planners.auto import auto
from penstock.planners.joined_layers import with_joined_layers
from penstock.planners.methods import balanced, data_parallel, uniform
from penstock.planners.methods.bipartition import bipartition
from penstock.planners.methods.dapple import dapple
from penstock.planners.methods.pipedream import pipedream
from penstock.planners.methods.spp import spp


class Planner(NamedTuple):
    """A planning method.

    Attributes:
        name: Its name on the command line.
        plan: Makes a plan for a problem.
        summary: One line of help.
        schedule: The schedule that it plans for by default.
        switches: Fields of `SearchSpace` that `plan` takes as keyword arguments.
    """

    name: str
    plan: Callable[..., Plan]
    summary: str
    schedule: str = "1f1b"
    switches: tuple[str, ...] = ()


REPLICA_SWITCHES = ("replication", "unequal_replicas", "device_order")

PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {
        # auto joins layers itself, because its plan holds the order that it found for it.
        item.name: item if item.plan is auto else item._replace(plan=with_joined_layers(item.plan))
        for item in (
            Planner("uniform", uniform, "equal numbers of layers, one device per stage"),
            Planner("balanced", balanced, "minimizes the slowest stage, one device per stage"),
            Planner("data_parallel", data_parallel, "the whole model on every device, rows split by speed"),
            Planner(
                "pipedream",
                pipedream,
                "minimizes the bottleneck of compute, transfers and all-reduce, replicated",
                switches=REPLICA_SWITCHES,
            ),
            Planner("dapple", dapple, "minimizes latency around a pivot stage, replicated", switches=REPLICA_SWITCHES),
            Planner(
                "spp",
                spp,
                "orders devices along fast links, then cuts and replicates stages on them",
                "pe",
                REPLICA_SWITCHES,
            ),
            Planner(
                "bipartition",
                bipartition,
                "different cuts for forward and backward, transfers priced",
                switches=("recomputation", "part_recomputation"),
            ),
            Planner("auto", auto, "the best of all planners, improved by search, within memory", "auto"),
        )
    }
)


def find_planner(name: str) -> Planner:
    """Look up a planner.

    Args:
        name: A key of `PLANNERS`.

    Raises:
        InputError: If there is no planner of that name.
    """
    if name not in PLANNERS:
        raise InputError(
            f"unknown planner {name!r}", hint=suggest_names(name, PLANNERS, label="Available planners", most=20)
        )
    return PLANNERS[name]
