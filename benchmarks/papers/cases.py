"""The problems on which the two papers' planners are compared with others, and the plans that are compared."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.emulation.cases import Problem
from benchmarks.instances import all_profiles
from benchmarks.planners.clusters import cluster_for
from penstock.emulation import Emulation
from penstock.planners import SearchSpace, plan
from penstock.profile import Profile

NUM_STEPS = 3
"""Iterations per plan; the first is a warm-up."""


class Method(NamedTuple):
    """A planner with a schedule, on plans with or without replication."""

    name: str
    planner: str
    schedule: str
    replication: bool = True


class Paper(NamedTuple):
    """A paper's planner, the planners that it is compared with, and the problems."""

    name: str
    published: float
    """The largest speed-up that the paper reports."""
    method: Method
    baselines: tuple[Method, ...]
    problems: tuple[Problem, ...]
    quick: Problem


BIPARTITION = Paper(
    "Bi-Partition",
    1.9,
    Method("bipartition, 1f1b", "bipartition", "1f1b", replication=False),
    (Method("pipedream, straight, 1f1b", "pipedream", "1f1b", replication=False),),
    (
        Problem("pipedream/inception_v3", "irregular", 16),
        Problem("pipedream/inception_v3", "irregular", 8),
        Problem("pipedream/gnmt", "irregular", 8),
        Problem("pipedream/alexnet", "irregular", 8),
        Problem("hpgo/vgg19", "irregular", 8),
        Problem("pipedream/alexnet", "4 fast", 8),
        Problem("pipedream/gnmt", "8 fast", 8),
        Problem("pipedream/alexnet", "regions", 4),
    ),
    Problem("pipedream/alexnet", "irregular", 8),
)
SPP = Paper(
    "SPP",
    2.57,
    Method("spp, pe", "spp", "pe"),
    (
        Method("gpipe, balanced stages", "balanced", "gpipe"),
        Method("pipedream, 1f1b", "pipedream", "1f1b"),
        Method("dapple, 1f1b", "dapple", "1f1b"),
        Method("data_parallel", "data_parallel", "1f1b"),
    ),
    (
        Problem("pipedream/alexnet", "2 x 4", 4),
        Problem("pipedream/alexnet", "irregular", 8),
        Problem("pipedream/alexnet", "lab", 8),
        Problem("pipedream/gnmt", "lab", 8),
        Problem("pipedream/gnmt", "4 fast", 8),
    ),
    Problem("pipedream/alexnet", "2 x 4", 4),
)
PAPERS = (BIPARTITION, SPP)


@cache
def _profiles(folder: Path) -> dict[str, Profile]:
    return all_profiles(folder)


def emulation_of(problem: Problem, method: Method, folder: Path) -> Emulation:
    """The plan of a method, with its profile and its cluster, to be emulated."""
    profile = _profiles(folder)[problem.profile]
    cluster = cluster_for(problem.cluster, profile, folder)
    found = plan(
        profile,
        cluster,
        problem.num_microbatches,
        planner=method.planner,
        schedule=method.schedule,
        search_space=SearchSpace(replication=method.replication),
    )
    return Emulation(plan=found, profile=profile, cluster=cluster, num_steps=NUM_STEPS)
