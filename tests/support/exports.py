"""Plans to export: of small chains with fixed times, on devices of one or two hosts."""

from collections.abc import Sequence

from msgspec.structs import replace

import penstock
from penstock.export import Export, export_plan, obstacles_to
from penstock.plan import Origin, Plan, Stage, on, planned_layers
from tests.support.small import equal_profile, one_host

ROWS = 2


def named_profile(
    names: Sequence[str], *, architecture: str = "", ties: Sequence[penstock.Tie] = ()
) -> penstock.Profile:
    """A profile of equal layers with these names."""
    profile = equal_profile(len(names), parameter_bytes=8, cut_bytes=4)
    units = tuple(replace(unit, name=name) for unit, name in zip(profile.units, names, strict=True))
    return replace(profile, units=units, architecture=architecture, ties=tuple(ties))


def block_names(num_blocks: int) -> list[str]:
    """The names of a computed profile of a decoder."""
    halves = [f"block.{number}.{half}" for number in range(num_blocks) for half in ("attn", "mlp")]
    return ["embedding", *halves, "head"]


def make_plan(
    profile: penstock.Profile,
    cluster: penstock.Cluster,
    cuts: Sequence[int],
    groups: Sequence[Sequence[str]],
    *,
    schedule: str = "interleaved",
    num_microbatches: int = 4,
    rows: int = ROWS,
    recompute: Sequence[int] = (),
    split_backward: bool = False,
    backward: Sequence[Sequence[str]] | None = None,
) -> Plan:
    """The plan whose stage k has layers cuts[k] up to cuts[k + 1], on groups[k]."""
    stages = tuple(
        Stage(
            start=cuts[number],
            stop=cuts[number + 1],
            forward=on(*group),
            backward=on(*(backward or groups)[number]),
            recompute=number in recompute,
        )
        for number, group in enumerate(groups)
    )
    return Plan(
        planner="hand",
        schedule=schedule,
        split_backward=split_backward,
        num_microbatches=num_microbatches,
        micro_batch_size=rows,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=stages,
        layers=planned_layers(profile),
    )


def obstacles(plan: Plan, profile: penstock.Profile, cluster: penstock.Cluster, engine: str) -> dict[str, str]:
    """The switch for each feature of the plan that the engine cannot say."""
    found = obstacles_to(penstock.evaluate(plan, profile, cluster), profile, engine)
    return {item.feature: item.switch for item in found}


def export(plan: Plan, profile: penstock.Profile, cluster: penstock.Cluster, engine: str) -> Export:
    return export_plan(penstock.evaluate(plan, profile, cluster), profile, engine)


def devices(number: int) -> penstock.Cluster:
    """Equal devices d0, d1, ... of one host."""
    return one_host(number)


def two_hosts(number: int) -> penstock.Cluster:
    """Equal devices h0.d0, h0.d1, ..., h1.d0, ... of two hosts."""
    wire = penstock.Wire(bandwidth=1.0)
    names = [(f"h{host}", f"h{host}.d{device}") for host in range(2) for device in range(number)]
    return penstock.Cluster(
        name="two hosts",
        hosts=(penstock.Host(name="h0", inside=wire), penstock.Host(name="h1", inside=wire)),
        devices=tuple(penstock.Device(name=name, host=host, kind="k") for host, name in names),
        between=wire,
    )
