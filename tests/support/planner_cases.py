"""Small profiles and clusters for planners, from lists of numbers, and random ones."""

import random
from collections.abc import Sequence

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.planners.problem import Problem
from penstock.profile.types import Profile, Sizes, Times, Unit


def profile_of(times: Sequence[tuple[float, float, float]]) -> Profile:
    """One layer for each (F, I, W)."""
    sizes = Sizes(micro_batch_size=1, cut_bytes=1, saved_bytes=1)
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=1,
            sizes=(sizes,),
            times=(Times(kind="k", micro_batch_size=1, forward_s=forward, input_grad_s=inputs, weight_grad_s=weights),),
        )
        for number, (forward, inputs, weights) in enumerate(times)
    )
    return Profile(name="small", micro_batch_size=1, units=units)


def cluster_of(speeds: Sequence[float]) -> Cluster:
    """One device for each speed."""
    wire = Wire(bandwidth=1e6)
    return Cluster(
        name="small",
        hosts=(Host(name="h", inside=wire),),
        devices=tuple(Device(name=f"d{index}", host="h", kind="k", speed=speed) for index, speed in enumerate(speeds)),
        between=wire,
    )


def unequal(seed: int, num_units: int, num_devices: int, num_microbatches: int) -> Problem:
    """A random problem with different layers, kinds, speeds, and links in both directions."""
    draw = random.Random(seed)
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=draw.randint(0, 400),
            sizes=(Sizes(micro_batch_size=4, cut_bytes=draw.randint(10, 300), saved_bytes=draw.randint(50, 900)),),
            times=tuple(
                Times(
                    kind=kind,
                    micro_batch_size=4,
                    forward_s=draw.uniform(0.3, 2.0),
                    input_grad_s=draw.uniform(0.3, 2.0),
                    weight_grad_s=draw.uniform(0.2, 2.0),
                    step_s=draw.uniform(0.0, 0.3),
                )
                for kind in "ab"
            ),
        )
        for number in range(num_units)
    )
    names = [f"d{number}" for number in range(num_devices)]
    links = tuple(
        Link(source=a, target=b, wire=Wire(bandwidth=draw.uniform(100, 2000), latency_s=draw.uniform(0.0, 0.3)))
        for a in names
        for b in names
        if a != b
    )
    devices = tuple(
        Device(name=name, host="h", kind=draw.choice("ab"), speed=draw.choice([0.5, 1.0, 2.0])) for name in names
    )
    wire = Wire(bandwidth=1000.0)
    cluster = Cluster(name="c", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire, links=links)
    profile = Profile(name="r", micro_batch_size=4, units=units, input_bytes=draw.randint(10, 300))
    return Problem(profile, cluster, num_microbatches)
