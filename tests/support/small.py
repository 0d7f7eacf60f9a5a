"""Small problems with round numbers, whose results can be computed by hand."""

from collections.abc import Sequence

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Origin, Plan, Stage
from penstock.profile.types import Profile, Sizes, Times, Unit


def equal_profile(
    num_units: int,
    *,
    forward_s: float = 1.0,
    input_grad_s: float = 1.0,
    weight_grad_s: float = 1.0,
    cut_bytes: int = 0,
    saved_bytes: int = 0,
    parameter_bytes: int = 0,
    step_s: float = 0.0,
) -> Profile:
    """A profile of equal layers with micro-batch size 1."""
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=parameter_bytes,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=cut_bytes, saved_bytes=saved_bytes),),
            times=(
                Times(
                    kind="k",
                    micro_batch_size=1,
                    forward_s=forward_s,
                    input_grad_s=input_grad_s,
                    weight_grad_s=weight_grad_s,
                    step_s=step_s,
                ),
            ),
        )
        for number in range(num_units)
    )
    return Profile(name="equal", micro_batch_size=1, units=units, gradient_ratio=1.0, optimizer_ratio=2.0)


def one_host(
    num_devices: int,
    *,
    bandwidth: float = 1.0,
    latency_s: float = 0.0,
    memory_bytes: Sequence[int | None] | int | None = None,
) -> Cluster:
    """Equal devices on one host."""
    limits = list(memory_bytes) if isinstance(memory_bytes, Sequence) else [memory_bytes] * num_devices
    wire = Wire(bandwidth=bandwidth, latency_s=latency_s)
    devices = tuple(
        Device(name=f"d{number}", host="h", kind="k", memory_bytes=limits[number]) for number in range(num_devices)
    )
    return Cluster(name="small", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)


def hand_plan(
    profile: Profile, cluster: Cluster, stages: Sequence[Stage], *, num_microbatches: int = 2, rows: int = 1
) -> Plan:
    """A plan of these stages."""
    return Plan(
        planner="hand",
        schedule="gpipe",
        num_microbatches=num_microbatches,
        micro_batch_size=rows,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=tuple(stages),
    )


def hand_costs(profile: Profile, devices: Sequence[Device], stages: Sequence[Stage]) -> Costs:
    """The costs of these stages with two micro-batches of one row, on devices of one host."""
    hosts = (Host(name="h", inside=Wire(bandwidth=1.0)),)
    cluster = Cluster(name="c", hosts=hosts, devices=tuple(devices), between=Wire(bandwidth=1.0))
    return price(hand_plan(profile, cluster, stages), profile, cluster)
