"""Compiles all numba kernels once (`python -m penstock.compile_kernels`); later runs load them from the cache."""

from penstock.cluster import load_cluster
from penstock.planners import PLANNERS, plan
from penstock.planners.bounds import lower_bound
from penstock.profile import load_profile
from penstock.simulate import evaluate


def warm() -> None:
    """Plan and simulate a small problem with every planner, to compile and cache all kernels."""
    profile = load_profile("gpt2", kinds=["T4"])
    cluster = load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s")
    for name in PLANNERS:
        evaluate(plan(profile, cluster, 2, planner=name), profile, cluster)
    for replication in (True, False):
        lower_bound(profile, cluster, 2, replication=replication)


if __name__ == "__main__":
    warm()
