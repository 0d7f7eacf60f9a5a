"""A small emulation for tests, and a mark for those that shape links."""

import os
from functools import cache
from shutil import which

import pytest

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.emulation.network.namespaces import leave_host
from penstock.emulation.spec import Emulation
from penstock.errors import InputError
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit


@cache
def why_not() -> str:
    """Why links cannot be shaped on this machine; empty if they can."""
    if which("tc", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        return "iproute2 is not installed"
    pid = os.fork()
    if not pid:
        try:
            leave_host()
        except InputError:
            os._exit(1)
        os._exit(0)
    return "this kernel refuses network namespaces" if os.waitpid(pid, 0)[1] else ""


needs_shaping = pytest.mark.skipif(bool(why_not()), reason=why_not())


def small(schedule: str = "1f1b") -> Emulation:
    """Four devices on two hosts with shared interfaces, with replicas and a remote backward.

    Actions of 20 ms; messages of 0.2 to 0.4 MB at 10 MB/s between hosts.
    """
    times = Times(kind="X", micro_batch_size=4, forward_s=0.02, input_grad_s=0.01, weight_grad_s=0.01, step_s=0.005)
    sizes = Sizes(micro_batch_size=4, cut_bytes=400_000, saved_bytes=200_000)
    units = tuple(Unit(name=name, parameter_bytes=800_000, sizes=(sizes,), times=(times,)) for name in "wxyz")
    profile = Profile(name="small", micro_batch_size=4, units=units, input_bytes=1000)
    inside = Wire(bandwidth=100e6)
    cluster = Cluster(
        name="pairs",
        hosts=tuple(Host(name=name, inside=inside, interface_bandwidth=10e6) for name in "ab"),
        devices=tuple(Device(name=f"d{number}", host="aabb"[number], kind="X") for number in range(4)),
        between=Wire(bandwidth=10e6, latency_s=2e-3),
    )
    plan = Plan(
        planner="by hand",
        schedule=schedule,
        num_microbatches=4,
        micro_batch_size=4,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=(
            Stage(start=0, stop=2, forward=on("d0", "d1"), backward=on("d0", "d1"), sharded_optimizer=True),
            Stage(start=2, stop=3, forward=on("d2"), backward=on("d3")),
            Stage(start=3, stop=4, forward=on("d3"), backward=on("d3"), recompute=True),
        ),
    )
    return Emulation(plan=plan, profile=profile, cluster=cluster)
