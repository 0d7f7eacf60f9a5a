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
"""Planner and schedule by the name that a row has."""

SLOW_NETWORKS = ("2 x 4", "4 x 4", "4 x 4 shared", "regions", "lab")
"""Clusters whose hosts are joined by far slower links than their devices."""


class Problem(NamedTuple):
    """A model on a cluster with so many micro-batches."""

    profile: str
    cluster: str
    num_microbatches: int

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.profile.partition('/')[2]} on {self.cluster}, M = {self.num_microbatches}"


class Case(NamedTuple):
    """One plan."""

    profile: str
    cluster: str
    num_microbatches: int
    method: str

    @property
    def problem(self) -> Problem:
        """What it is a plan for."""
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
"""Left out is what would take minutes an iteration here, as it moves tens of gigabytes."""
QUICK = (Case("pipedream/alexnet", "4 x 4 shared", 8, "pipedream"), Case("pipedream/alexnet", "2 x 4", 4, "dapple"))


def all_cases() -> tuple[Case, ...]:
    """Every method on every problem, but for those left out."""
    return tuple(Case(*problem, method) for problem, methods in PROBLEMS.items() for method in methods)


@cache
def profiles(folder: Path) -> dict[str, Profile]:
    """The published profiles."""
    return all_profiles(folder)


def made(case: Case, folder: Path) -> tuple[Plan, Profile, Cluster]:
    """The plan of a case, and what it is for."""
    profile = profiles(folder)[case.profile]
    cluster = cluster_for(case.cluster, profile, folder)
    planner, schedule = METHODS[case.method]
    return plan(profile, cluster, case.num_microbatches, planner=planner, schedule=schedule), profile, cluster
