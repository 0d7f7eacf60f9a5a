"""Random problems for property tests: unequal devices and links, replicas, remote backwards, recomputation, ties."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
from hypothesis import strategies as st

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Group, Origin, Plan, Replica, Stage, on
from penstock.profile.collectives import MeasuredAllReduce
from penstock.profile.overhead import Overhead
from penstock.profile.types import Profile, Sizes, Tie, Times, Unit
from penstock.program.lowering.lowering import lower
from penstock.program.types import Program
from penstock.schedules.registry import SCHEDULES, schedule
from tests.support.reach import reach

NAMED_SCHEDULES = [name for name in SCHEDULES if not name.startswith("auto")]
"""Schedules with an order of their own; `auto`, which tries them all, has its own tests."""

SECONDS = st.sampled_from([0.0, 0.25, 1.0, 1.5, 3.0]) | st.floats(0.0, 4.0)
BYTES = st.sampled_from([0, 1, 10, 1000]) | st.integers(0, 5000)


@dataclass(frozen=True)
class Case:
    profile: Profile
    cluster: Cluster
    plan: Plan

    @property
    def costs(self) -> Costs:
        return price(self.plan, self.profile, self.cluster)

    def lowered(self, costs: Costs) -> Program:
        return lower(schedule(costs), costs)


def sizes_up_to(largest: int) -> st.SearchStrategy[int]:
    """Sizes from 1. 1 is less likely than the others, as most properties are trivial for it."""
    return st.sampled_from([1, *range(2, largest + 1), *range(2, largest + 1)])


@st.composite
def profiles(draw: st.DrawFn, *, max_units: int = 7, overheads: bool = False) -> Profile:
    """With `overheads`, some profiles have runtime overheads, which planners from papers ignore."""
    kinds = draw(st.sampled_from([("slow",), ("slow", "quick")]))
    sizes_of_rows = draw(st.sampled_from([(4,), (2, 8)]))
    units = []
    for number in range(draw(sizes_up_to(max_units))):
        times = tuple(
            Times(
                kind=kind,
                micro_batch_size=rows,
                forward_s=draw(SECONDS),
                input_grad_s=draw(SECONDS),
                weight_grad_s=draw(SECONDS),
                step_s=draw(SECONDS),
            )
            for kind in kinds
            for rows in sizes_of_rows
        )
        sizes = tuple(
            Sizes(
                micro_batch_size=rows,
                cut_bytes=draw(BYTES),
                saved_bytes=draw(BYTES),
                pending_bytes=draw(st.none() | st.integers(0, 5000)),
            )
            for rows in sizes_of_rows
        )
        units.append(Unit(name=f"u{number}", parameter_bytes=draw(BYTES), sizes=sizes, times=times))
    ties: tuple[Tie, ...] = ()
    if len(units) > 1 and draw(st.booleans()):
        chosen = draw(st.lists(st.integers(0, len(units) - 1), min_size=2, max_size=3, unique=True))
        size = min(units[index].parameter_bytes for index in chosen)
        ties = (Tie(name="shared", parameter_bytes=size, units=tuple(chosen)),)
    spent: tuple[Overhead, ...] = ()
    if overheads and draw(st.booleans()):
        ratios = st.sampled_from([0.0, 0.25])
        parts = draw(st.tuples(SECONDS, SECONDS, st.floats(0.0, 1e-3), ratios, ratios))
        named = dict(zip(("job_s", "message_s", "byte_s", "split_ratio", "remote_ratio"), parts, strict=True))
        spent = (Overhead(kind=kinds[-1], **named),)
    whole = Profile(
        name="random", micro_batch_size=4, units=tuple(units), input_bytes=draw(BYTES), ties=ties, overheads=spent
    )
    return draw(frozen(whole)) if draw(st.integers(0, 3)) == 3 else whole


@st.composite
def frozen(draw: st.DrawFn, profile: Profile) -> Profile:
    """The profile with a part of each layer's parameters frozen, as with adapters."""
    ties = tuple(msgspec.structs.replace(tie, is_trained=draw(st.booleans())) for tie in profile.ties)
    units = []
    for number, unit in enumerate(profile.units):
        here = [tie for tie in ties if number in tie.units]
        least = sum(tie.parameter_bytes for tie in here if tie.is_trained)
        most = unit.parameter_bytes - sum(tie.parameter_bytes for tie in here if not tie.is_trained)
        trained = draw(st.sampled_from([least, most]) | st.integers(least, most))
        units.append(msgspec.structs.replace(unit, trained_parameter_bytes=trained))
    return msgspec.structs.replace(profile, units=tuple(units), ties=ties)


@st.composite
def clusters(draw: st.DrawFn, *, max_devices: int = 5, fast: bool = False, with_all_reduces: bool = False) -> Cluster:
    """Any cluster. With `fast` links, the best plans often use many devices."""
    wires = st.builds(
        Wire,
        bandwidth=st.sampled_from([1e5, 1e6]) if fast else st.sampled_from([10.0, 1000.0, 1e6]) | st.floats(1.0, 1e6),
        latency_s=st.just(0.0) if fast else st.sampled_from([0.0, 0.0, 0.5]) | st.floats(0.0, 3.0),
    )
    interfaces = st.none() | st.sampled_from([50.0, 1000.0]) | st.floats(10.0, 1e5)
    num_hosts = draw(st.integers(1, 3))
    hosts = tuple(
        Host(name=f"h{number}", inside=draw(wires), interface_bandwidth=draw(interfaces)) for number in range(num_hosts)
    )
    devices = tuple(
        Device(
            name=f"d{number}",
            host=f"h{draw(st.integers(0, num_hosts - 1))}",
            kind=draw(st.sampled_from(["slow", "quick", "other"])),
            speed=draw(st.sampled_from([1.0, 1.0, 0.5, 2.0])),
        )
        for number in range(draw(sizes_up_to(max_devices)))
    )
    links = []
    if len(devices) > 1:
        pairs = st.permutations([device.name for device in devices]).map(lambda names: (names[0], names[1]))
        for source, target in draw(st.lists(pairs, max_size=3, unique=True)):
            links.append(Link(source=source, target=target, wire=draw(wires)))
    return Cluster(
        name="random",
        hosts=hosts,
        devices=devices,
        between=draw(wires),
        links=tuple(links),
        all_reduces=draw(st.just(()) | all_reduces()) if with_all_reduces else (),
    )


@st.composite
def all_reduces(draw: st.DrawFn) -> tuple[MeasuredAllReduce, ...]:
    """Measured all-reduces over two and three devices, slower or faster than the ring over links."""
    found = []
    for num_devices in (2, 3):
        seconds = st.sampled_from([1e-6, 0.01, 1.0]) | st.floats(1e-6, 10.0)
        found.append(
            MeasuredAllReduce(
                num_devices=num_devices, num_bytes=(10.0, 500.0, 2000.0), seconds=tuple(draw(seconds) for _ in range(3))
            )
        )
    return tuple(found)


@st.composite
def cases(draw: st.DrawFn, *, max_microbatches: int = 5, straight: bool = False) -> Case:
    """Any plan. A `straight` one has at most one stage per device, without replicas."""
    profile, cluster = draw(profiles(overheads=True)), draw(clusters(with_all_reduces=True))
    names = [device.name for device in cluster.devices]
    num_stages = draw(sizes_up_to(min(6, profile.num_units)))
    inner = draw(st.permutations(range(1, profile.num_units)))[: num_stages - 1]
    cuts = [0, *sorted(inner), profile.num_units]
    if straight:
        cuts = [*cuts[:-1][: len(names)], profile.num_units]
        row = draw(st.permutations(names))
    stages = []
    for number, (start, stop) in enumerate(pairwise(cuts)):
        if straight:
            group = on(row[number])
            stages.append(Stage(start=start, stop=stop, forward=group, backward=group, recompute=draw(st.booleans())))
            continue
        size = draw(st.integers(1, min(3, len(names))))
        weights = draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=size, max_size=size))
        shares = [weight / sum(weights) for weight in weights]
        forward = draw(st.permutations(names))[:size]
        backward = forward if draw(st.booleans()) else draw(st.permutations(names))[:size]
        stages.append(
            Stage(
                start=start,
                stop=stop,
                forward=tuple(Replica(name, share) for name, share in zip(forward, shares, strict=True)),
                backward=tuple(Replica(name, share) for name, share in zip(backward, shares, strict=True)),
                recompute=draw(st.booleans()),
                sharded_optimizer=size > 1 and forward == backward and draw(st.booleans()),
            )
        )
    plan = Plan(
        planner="random",
        schedule=draw(st.sampled_from(NAMED_SCHEDULES)),
        split_backward=draw(st.booleans()),
        num_microbatches=draw(sizes_up_to(max_microbatches)),
        micro_batch_size=draw(st.sampled_from([1, 4, 6])),
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=tuple(stages),
    )
    return Case(profile, cluster, plan)


def pipelines(max_microbatches: int) -> st.SearchStrategy[Case]:
    """Several stages on as many devices, with several micro-batches: few of all cases can be ordered in many ways."""
    return cases(max_microbatches=max_microbatches, straight=True).filter(
        lambda case: case.plan.num_stages > 1 and case.plan.num_microbatches > 1
    )


def reach_features(case: Case) -> None:
    """Note which features the plan of the current example has, for `@reaches`."""
    stages, cluster = case.plan.stages, case.cluster
    host_of = {device.name: device.host for device in cluster.devices}
    hosts = {host_of[name] for name in case.plan.devices}
    interfaces = {host.name for host in cluster.hosts if host.interface_bandwidth is not None}
    reach("several_stages", len(stages) > 1)
    reach("several_devices", len(case.plan.devices) > 1)
    reach("replicated", any(stage.num_replicas > 1 for stage in stages))
    reach("remote", any(stage.has_remote_backward for stage in stages))
    reach("recompute", any(stage.recompute for stage in stages))
    reach("split", case.plan.split_backward)
    reach("tied", case.profile.ties)
    reach("shared", len(hosts) > 1 and hosts & interfaces)


def without_shared_interfaces(case: Case) -> Case:
    """The same problem with interfaces that no transfer has to share."""
    hosts = tuple(msgspec.structs.replace(host, interface_bandwidth=None) for host in case.cluster.hosts)
    cluster = msgspec.structs.replace(case.cluster, hosts=hosts)
    plan = msgspec.structs.replace(case.plan, cluster=Origin(name=cluster.name, digest=cluster.digest))
    return Case(case.profile, cluster, plan)


def with_limits(case: Case, limits: list[int | None]) -> Case:
    """The same problem with a memory limit per device."""
    devices = tuple(
        msgspec.structs.replace(device, memory_bytes=limit)
        for device, limit in zip(case.cluster.devices, limits, strict=True)
    )
    cluster = msgspec.structs.replace(case.cluster, devices=devices)
    plan = msgspec.structs.replace(case.plan, cluster=Origin(name=cluster.name, digest=cluster.digest))
    return Case(case.profile, cluster, plan)


def equal_case(
    lanes: Sequence[int],
    num_microbatches: int,
    schedule_name: str,
    *,
    forward_s: float = 1.0,
    input_grad_s: float = 0.5,
    weight_grad_s: float = 0.5,
    saved_bytes: int = 1,
) -> Case:
    """Equal stages of one layer, stage k on device lanes[k]. Messages are empty; only saved tensors take memory."""
    times = Times(
        kind="k",
        micro_batch_size=1,
        forward_s=forward_s,
        input_grad_s=input_grad_s,
        weight_grad_s=weight_grad_s,
        step_s=0.0,
    )
    sizes = Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=saved_bytes)
    units = tuple(
        Unit(name=f"u{number}", parameter_bytes=0, sizes=(sizes,), times=(times,)) for number in range(len(lanes))
    )
    profile = Profile(name="equal", micro_batch_size=1, units=units)
    wire = Wire(bandwidth=1.0)
    devices = tuple(Device(name=f"d{number}", host="h", kind="k") for number in range(max(lanes) + 1))
    cluster = Cluster(name="equal", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    plan = Plan(
        planner="test",
        schedule=schedule_name,
        num_microbatches=num_microbatches,
        micro_batch_size=1,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=tuple(
            Stage(start=number, stop=number + 1, forward=on(f"d{lane}"), backward=on(f"d{lane}"))
            for number, lane in enumerate(lanes)
        ),
    )
    return Case(profile, cluster, plan)


SLOW_WIRE = Wire(bandwidth=2.0, latency_s=1.0)


def two_stages(
    *,
    num_microbatches: int,
    schedule_name: str = "1f1b",
    groups: Sequence[tuple[Group, Group]] = ((on("d0"), on("d0")), (on("d1"), on("d1"))),
    num_devices: int = 2,
    ties: tuple[Tie, ...] = (),
    recompute: bool = False,
    wire: Wire = SLOW_WIRE,
) -> Case:
    """Two stages of one layer: F = 2, I = W = 1 second, cuts of 4 bytes at 2 bytes and 1 second of latency, 8 bytes
    saved (6 of them until W), 16 bytes of parameters, an input of 3 bytes."""
    times = Times(kind="k", micro_batch_size=1, forward_s=2.0, input_grad_s=1.0, weight_grad_s=1.0)
    sizes = Sizes(micro_batch_size=1, cut_bytes=4, saved_bytes=8, pending_bytes=6)
    units = tuple(Unit(name=name, parameter_bytes=16, sizes=(sizes,), times=(times,)) for name in "ab")
    profile = Profile(name="two", micro_batch_size=1, units=units, input_bytes=3, ties=ties)
    devices = tuple(Device(name=f"d{number}", host="h", kind="k") for number in range(num_devices))
    cluster = Cluster(name="two", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    plan = Plan(
        planner="test",
        schedule=schedule_name,
        num_microbatches=num_microbatches,
        micro_batch_size=1,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=tuple(
            Stage(start=number, stop=number + 1, forward=forward, backward=backward, recompute=recompute)
            for number, (forward, backward) in enumerate(groups)
        ),
    )
    return Case(profile, cluster, plan)
