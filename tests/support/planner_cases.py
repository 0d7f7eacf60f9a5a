"""Small profiles and clusters for planners, from lists of numbers."""

from collections.abc import Sequence

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.profile.types import Profile, Sizes, Times, Unit


def profile_of(times: Sequence[tuple[float, float, float]]) -> Profile:
    """One unit for each (F, I, W)."""
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
        devices=tuple(Device(name=f"d{place}", host="h", kind="k", speed=speed) for place, speed in enumerate(speeds)),
        between=wire,
    )
