"""The cases, and the plans of all planners for one of them."""

import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.instances import all_profiles
from benchmarks.planners.clusters import CLUSTERS, ONE_HOST, cluster_for
from benchmarks.planners.iteration_parts import IterationParts, iteration_parts
from benchmarks.planners.methods import TriedPlan, fastest_auto, fits, try_all
from penstock.cluster import Cluster, load_cluster
from penstock.planners import Problem
from penstock.planners.bounds import lower_bound
from penstock.profile import Profile, load_profile
from penstock.simulate import evaluate

MICROBATCHES = (4, 16, 64)


class Analytic(NamedTuple):
    """An analytic profile that does not fit on a single device, with its cluster."""

    model: str
    kind: str
    micro_batch_size: int
    sequence: int
    cluster: str


ANALYTIC = {
    "gpt2-xl": Analytic("gpt2-xl", "RTX-3090", 4, 1024, "8 x RTX-3090 @ 12 GB/s"),
    "llama-3-8b": Analytic("llama-3-8b", "A100-40", 4, 2048, "2 x 4 x A100-40 @ 100 GB/s / 1.25 GB/s"),
    "llama-3-70b": Analytic("llama-3-70b", "A100-80", 4, 2048, "8 x 8 x A100-80 @ 100 GB/s / 100 Gbit/s"),
}


class Case(NamedTuple):
    """A model on a cluster, with a number of micro-batches."""

    profile: str
    cluster: str
    num_microbatches: int

    @property
    def title(self) -> str:
        """The name in tables and messages."""
        return f"{self.profile} on {self.cluster}, M = {self.num_microbatches}"


QUICK = (
    Case("pipedream/gnmt", "4 fast", 4),
    Case("pipedream/alexnet", "lab", 4),
    Case("gpt2-xl", ANALYTIC["gpt2-xl"].cluster, 4),
)


class AutoRun(msgspec.Struct, frozen=True):
    """The plan of `auto`, and its lower bound."""

    seconds: float
    fits: bool
    planning_s: float
    bound_s: float
    bound_by: str
    bound_parts: dict[str, float]
    parts: IterationParts


class CaseRun(msgspec.Struct, frozen=True):
    """The results of one case. The planning time of `auto` is that of the whole call."""

    profile: str
    cluster: str
    num_microbatches: int
    one_host: bool
    num_devices: int
    num_units: int
    others: tuple[TriedPlan, ...]
    replicated: AutoRun
    straight: AutoRun

    @property
    def title(self) -> str:
        """The name in tables and messages."""
        return Case(self.profile, self.cluster, self.num_microbatches).title


def all_cases(folder: Path) -> list[Case]:
    """The analytic profiles on their clusters, which take longest, and every published profile on every cluster."""
    published = [Case(name, cluster, num) for name in profiles(folder) for cluster in CLUSTERS for num in MICROBATCHES]
    computed = [Case(name, item.cluster, num) for name, item in ANALYTIC.items() for num in MICROBATCHES]
    return computed[::-1] + published


@cache
def profiles(folder: Path) -> dict[str, Profile]:
    """The published profiles."""
    return all_profiles(folder)


def problem_of(case: Case, folder: Path) -> Problem:
    """The planners' problem of a case."""
    profile, cluster = _model_and_cluster(case, folder)
    return Problem(profile, cluster, case.num_microbatches)


def digests(case: Case, folder: Path) -> tuple[str, str]:
    """The digests of a case's profile and cluster."""
    profile, cluster = _model_and_cluster(case, folder)
    return profile.digest, cluster.digest


def _model_and_cluster(case: Case, folder: Path) -> tuple[Profile, Cluster]:
    if case.profile in ANALYTIC:
        item = ANALYTIC[case.profile]
        profile = load_profile(
            item.model, kinds=[item.kind], micro_batch_size=item.micro_batch_size, sequence=item.sequence
        )
        return profile, load_cluster(item.cluster)
    profile = profiles(folder)[case.profile]
    return profile, cluster_for(case.cluster, profile, folder)


def run_case(case: Case, folder: Path) -> CaseRun:
    """All planners on one case, with and without replication."""
    problem = problem_of(case, folder)
    return CaseRun(
        profile=case.profile,
        cluster=case.cluster,
        num_microbatches=case.num_microbatches,
        one_host=case.cluster in ONE_HOST,
        num_devices=problem.cluster.num_devices,
        num_units=problem.profile.num_units,
        others=tuple(try_all(problem)),
        replicated=_run_auto(problem, replication=True),
        straight=_run_auto(problem, replication=False),
    )


def _run_auto(problem: Problem, *, replication: bool) -> AutoRun:
    start_time = time.perf_counter()
    plan = fastest_auto(problem, replication=replication)
    planning_s = time.perf_counter() - start_time
    evaluation = evaluate(plan, problem.profile, problem.cluster, within_memory=False)
    bound = lower_bound(problem.profile, problem.cluster, problem.num_microbatches, replication=replication)
    return AutoRun(
        seconds=evaluation.timeline.iteration_s,
        fits=fits(evaluation),
        planning_s=planning_s,
        bound_s=bound.seconds,
        bound_by=bound.reason,
        bound_parts={part.name: part.seconds for part in bound.parts},
        parts=iteration_parts(evaluation),
    )
