"""The numbering of the devices hardly matters: another order in the cluster changes little or nothing."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from penstock.cluster.load import load_cluster
from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.plan.types import Plan
from penstock.planners.auto.search import auto
from penstock.planners.methods.spp.planner import spp
from penstock.planners.problem import Problem
from penstock.profile.load import load_profile
from penstock.profile.types import Profile
from penstock.simulate.evaluation import evaluate

MAX_CHANGE = 0.02


def _irregular(seed: int, num_devices: int) -> Cluster:
    random = np.random.default_rng(seed)
    devices = tuple(
        Device(name=f"d{index}", host="h", kind="V100-16", speed=float(random.uniform(0.5, 1.5)))
        for index in range(num_devices)
    )
    wires = random.uniform(8.5, 11.0, (num_devices, num_devices))
    links = tuple(
        Link(source=one.name, target=other.name, wire=Wire(bandwidth=float(10 ** wires[a, b])))
        for a, one in enumerate(devices)
        for b, other in enumerate(devices)
        if a != b
    )
    wire = Wire(bandwidth=1e9)
    return Cluster(name="irregular", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire, links=links)


def _renumbered(cluster: Cluster, seed: int) -> Cluster:
    order = np.random.default_rng(seed).permutation(cluster.num_devices)
    return msgspec.structs.replace(cluster, devices=tuple(cluster.devices[device] for device in order))


CLUSTERS = {
    "hosts": load_cluster("2 x 3 x V100-16 @ 100 GB/s / 1.25 GB/s"),
    "irregular 5": _irregular(1, 5),
    "irregular 6": _irregular(2, 6),
    "irregular 7": _irregular(3, 7),
}


QUICK = ("hosts", "irregular 7")
"""Clusters on which every run tries auto."""


@pytest.fixture(scope="module", params=["vgg16", "gpt2"])
def profile(request: pytest.FixtureRequest) -> Profile:
    rows = {"vgg16": 32, "gpt2": 8}[request.param]
    return load_profile(request.param, kinds=["V100-16"], micro_batch_size=rows)


@pytest.mark.parametrize("planner", [spp, auto], ids=["spp", "auto"])
@pytest.mark.parametrize("name", CLUSTERS)
def test_renumbering_the_devices(
    planner: Callable[[Problem], Plan], name: str, profile: Profile, thorough: bool
) -> None:
    if planner is auto and name not in QUICK and not thorough:
        pytest.skip("takes long: pytest --thorough")
    orders = range(3 if planner is spp or thorough else 1)
    clusters = [CLUSTERS[name], *(_renumbered(CLUSTERS[name], seed) for seed in orders)]
    seconds = [
        evaluate(planner(Problem(profile, cluster, 8)), profile, cluster).timeline.iteration_s for cluster in clusters
    ]
    assert max(seconds) <= min(seconds) * (1 + MAX_CHANGE)
