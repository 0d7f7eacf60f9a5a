"""The plans that are emulated: planners on models and clusters, each with the schedule that it is known for."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.instances import all_profiles
from benchmarks.planners.clusters import cluster_for
from penstock.cluster import Cluster
from penstock.plan import Plan
from penstock.planners import plan
from penstock.profile import Profile

METHODS = {
    "gpipe": ("balanced", "gpipe"),
    "balanced": ("balanced", "1f1b"),
    "pipedream": ("pipedream", "1f1b"),
    "dapple": ("dapple", "1f1b"),
    "data_parallel": ("data_parallel", "1f1b"),
    "spp": ("spp", "pe"),
    "auto": ("auto", "auto"),
}
"""Planner and schedule of each row of the tables."""

SLOW_NETWORKS = ("2 x 4", "4 x 4", "4 x 4 shared", "regions", "lab")
"""Clusters with far slower links between hosts than inside them."""


class Problem(NamedTuple):
    """A model on a cluster, with a number of micro-batches."""

    profile: str
    cluster: str
    num_microbatches: int

    @property
    def title(self) -> str:
        """The name in tables and messages."""
        return f"{self.profile.partition('/')[2]} on {self.cluster}, M = {self.num_microbatches}"


class Case(NamedTuple):
    """A method on a problem."""

    profile: str
    cluster: str
    num_microbatches: int
    method: str

    @property
    def problem(self) -> Problem:
        """The problem that the plan solves."""
        return Problem(*self[:3])


ALL = tuple(METHODS)
BUT_DATA_PARALLEL = tuple(name for name in METHODS if name != "data_parallel")
PROBLEMS = {
    Problem("pipedream/alexnet", "2 x 4", 4): ALL,
    Problem("pipedream/alexnet", "4 x 4 shared", 8): ALL,
    Problem("pipedream/alexnet", "lab", 8): ALL,
    Problem("pipedream/alexnet", "irregular", 8): ALL,
    Problem("pipedream/alexnet", "regions", 4): ALL,
    Problem("pipedream/gnmt", "8 fast", 8): ("gpipe", "balanced", "pipedream", "auto"),
    Problem("pipedream/gnmt", "2 x 4", 8): BUT_DATA_PARALLEL,
    Problem("pipedream/gnmt", "lab", 8): BUT_DATA_PARALLEL,
    Problem("pipedream/gnmt", "regions", 16): BUT_DATA_PARALLEL,
    Problem("hpgo/bert_large", "lab", 4): BUT_DATA_PARALLEL,
    Problem("pipedream/vgg16", "lab", 8): ("pipedream", "dapple", "spp", "auto"),
}
"""Without plans that transfer tens of gigabytes, which take minutes per iteration when emulated."""
QUICK = (Case("pipedream/alexnet", "4 x 4 shared", 8, "pipedream"), Case("pipedream/alexnet", "2 x 4", 4, "dapple"))


def all_cases() -> tuple[Case, ...]:
    """All methods of all problems."""
    return tuple(Case(*problem, method) for problem, methods in PROBLEMS.items() for method in methods)


@cache
def profiles(folder: Path) -> dict[str, Profile]:
    """The published profiles."""
    return all_profiles(folder)


def plan_case(case: Case, folder: Path) -> tuple[Plan, Profile, Cluster]:
    """The plan of a case, with its profile and its cluster."""
    profile = profiles(folder)[case.profile]
    cluster = cluster_for(case.cluster, profile, folder)
    planner, schedule = METHODS[case.method]
    return plan(profile, cluster, case.num_microbatches, planner=planner, schedule=schedule), profile, cluster
