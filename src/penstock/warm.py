"""Compile what is compiled, once: `python -m penstock.warm`. Later runs take it from the cache beside the code."""

from penstock.cluster.load import load_cluster
from penstock.planners import PLANNERS
from penstock.planners.bounds import lower_bound
from penstock.planners.make import plan
from penstock.profile.load import load_profile
from penstock.simulate.evaluate import evaluate


def warm() -> None:
    """Plan and simulate something small with every planner, so that everything is compiled and cached."""
    profile = load_profile("gpt2", kinds=["T4"])
    cluster = load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s")
    for name in PLANNERS:
        evaluate(plan(profile, cluster, 2, planner=name), profile, cluster)
    for replication in (True, False):
        lower_bound(profile, cluster, 2, replication=replication)


if __name__ == "__main__":
    warm()
