"""PipeDream: no other cuts and replica counts have a smaller bottleneck, on one level and on two."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Plan
from penstock.planners.costs.replica_groups import BACKWARD, FORWARD, GroupCosts
from penstock.planners.methods.pipedream.levels import Stage, find_flat, find_levels, replica_counts
from penstock.planners.methods.pipedream.planner import bottleneck_s, pipedream
from penstock.planners.problem import Problem
from penstock.profile.types import Profile
from penstock.simulate.evaluation import evaluate
from tests.support.planner_cases import cluster_of
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import clusters, profiles
from tests.support.thoroughness import examples

CLOSE = 1 + 1e-9


def plain_bottleneck(plan: Plan, profile: Profile, cluster: Cluster) -> float:
    """The slowest stage or channel for one micro-batch, from the price of the plan."""
    costs = price(plan, profile, cluster)
    work = costs.forward_s + costs.input_grad_s + costs.weight_grad_s
    stages = [float(work[costs.replicas(number)].max()) for number in range(plan.num_stages)]
    for item in costs.reductions:
        stages[item.number] += (item.ring.occupancy_s + item.ring.latency_s) / plan.num_microbatches
    flows, bottleneck = costs.flows, max(stages)
    for cut in range(plan.num_stages - 1):
        both = 0.0
        for what, stage in ((ACTIVATION, cut), (GRADIENT, cut + 1)):
            loads, latency = {}, 0.0
            for flow in np.flatnonzero((flows.what == what) & (costs.replica_stage[flows.source_replica] == stage)):
                pair = int(flows.source[flow]), int(flows.target[flow])
                size = float(flows.num_bytes[flow])
                loads[pair] = size / float(cluster.bandwidth[pair])
                latency = max(latency, float(cluster.latency_s[pair]))
                ends = [int(cluster.host_index[end]) for end in pair]
                for side, host in enumerate(ends):
                    speed = cluster.hosts[host].interface_bandwidth
                    if ends[0] != ends[1] and speed is not None:
                        key = (-1 - side, host)
                        loads[key] = loads.get(key, 0.0) + size / speed
            both += latency + max(loads.values())
        bottleneck = max(bottleneck, both)
    return bottleneck


def all_stages(num_units: int, row: Sequence[int], *, replication: bool = True) -> Iterator[list[Stage]]:
    """Every division of the layers into stages on consecutive devices of a row, with some left over or not."""
    for number in range(1, min(num_units, len(row)) + 1):
        for inner in combinations(range(1, num_units), number - 1):
            for taken in combinations(range(1, len(row) + 1), number):
                spans = list(zip(pairwise((0, *inner, num_units)), pairwise((0, *taken)), strict=True))
                if replication or all(last - first == 1 for _, (first, last) in spans):
                    yield [Stage(start, stop, tuple(row[first:last])) for (start, stop), (first, last) in spans]


def plan_of(group_costs: GroupCosts, stages: Sequence[Stage]) -> Plan | None:
    if any(group_costs.shares(stage.group) is None for stage in stages):
        return None
    cuts = [0, *(stage.stop for stage in stages)]
    return group_costs.problem.plan("test", cuts, [group_costs.plan_group(stage.group) for stage in stages])


@pytest.mark.parametrize("replication", [True, False])
def test_no_stages_in_a_row_are_better(replication: bool) -> None:
    @reaches(several_devices=0.1, better=0.1)
    @examples(100)
    @given(profiles(max_units=4), clusters(max_devices=4), st.integers(1, 5))
    def check(profile: Profile, cluster: Cluster, num: int) -> None:
        profile = msgspec.structs.replace(profile, ties=())
        problem = Problem(profile, cluster, num)
        group_costs = GroupCosts(problem)
        every = all_stages(profile.num_units, group_costs.devices, replication=replication)
        candidates = [plan_of(group_costs, stages) for stages in every]
        bottlenecks = [plain_bottleneck(plan, profile, cluster) for plan in candidates if plan is not None]
        best = min(bottlenecks)
        flat = plan_of(group_costs, find_flat(group_costs, None if replication else 1))
        assert flat is not None
        assert plain_bottleneck(flat, profile, cluster) == pytest.approx(best, rel=1e-9)
        reach("several_devices", len(flat.devices) > 1)
        reach("better", best * CLOSE < max(bottlenecks))
        # Levels may be better still; the result is never worse.
        plan = pipedream(problem, replication=replication)
        assert plain_bottleneck(plan, profile, cluster) <= best * CLOSE
        if not replication:
            assert all(stage.num_replicas == 1 for stage in plan.stages)

    check()


def twin_hosts(
    num_hosts: int, speeds: Sequence[float], inside: Wire, between: Wire, interface: float | None = None
) -> Cluster:
    """Equal hosts."""
    return Cluster(
        name="twins",
        hosts=tuple(Host(name=f"h{n}", inside=inside, interface_bandwidth=interface) for n in range(num_hosts)),
        devices=tuple(
            Device(name=f"h{n}d{index}", host=f"h{n}", kind="slow", speed=speed)
            for n in range(num_hosts)
            for index, speed in enumerate(speeds)
        ),
        between=between,
    )


def nested_values(group_costs: GroupCosts) -> dict[tuple[Stage, ...], float]:
    """Every pipeline of pipelines, with its bottleneck by the sum of the costs of both levels."""
    hosts, num = group_costs.hosts, group_costs.problem.num_microbatches
    heads = [host[0] for host in hosts]
    values: dict[tuple[Stage, ...], float] = {}

    def inner_value(stages: Sequence[Stage], portion: float) -> float:
        worst = 0.0
        for stage, before in zip(stages, [None, *stages[:-1]], strict=True):
            sums = group_costs.sums(stage.group, FORWARD + BACKWARD, portion=portion)
            size = float(group_costs.parameter_sums[stage.stop] - group_costs.parameter_sums[stage.start])
            own = float((sums[:, stage.stop] - sums[:, stage.start]).max())
            worst = max(worst, own + group_costs.reduce_price(stage.group).of(size) / num)
            if before is not None:
                channel = group_costs.channel(before.group, stage.group)
                worst = max(worst, channel.both_ways_s(float(group_costs.cut_bytes[stage.start]) * portion))
        return worst

    def extend(outer: list[Stage], done: list[Stage], value: float) -> None:
        if not outer:
            key = tuple(done)
            values[key] = min(values.get(key, np.inf), value)
            return
        stage, rest = outer[0], outer[1:]
        chosen = [host for host in hosts if host[0] in stage.group]
        size = float(group_costs.parameter_sums[stage.stop] - group_costs.parameter_sums[stage.start])
        across = group_costs.reduce_price(stage.group).of(size) / num
        for inner in all_stages(stage.stop - stage.start, chosen[0]):
            shifted = [Stage(part.start + stage.start, part.stop + stage.start, part.group) for part in inner]
            own = inner_value(shifted, 1 / len(chosen)) + across
            spread = []
            for part in shifted:
                indices = [chosen[0].index(device) for device in part.group]
                group = tuple(host[index] for host in chosen for index in indices)
                spread.append(Stage(part.start, part.stop, group))
            extend(rest, done + spread, max(value, own))

    for outer in all_stages(group_costs.problem.profile.num_units, heads):
        value = 0.0
        for left, right in pairwise(outer):
            channel = group_costs.channel(left.group, right.group)
            value = max(value, channel.both_ways_s(float(group_costs.cut_bytes[right.start])))
        extend(outer, [], value)
    return values


def test_no_pipelines_inside_hosts_are_better() -> None:
    @reaches(several_devices=0.1, pipeline=0.05, across_hosts=0.05, better=0.1)
    @examples(200)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        profile = data.draw(profiles(max_units=3))
        wires = st.builds(Wire, bandwidth=st.sampled_from([10.0, 1e3, 1e6]), latency_s=st.sampled_from([0.0, 0.5]))
        speeds = data.draw(st.sampled_from([[1.0, 1.0], [1.0, 2.0], [2.0, 1.0]]))
        interface = data.draw(st.sampled_from([None, 50.0]))
        cluster = twin_hosts(data.draw(st.integers(2, 3)), speeds, data.draw(wires), data.draw(wires), interface)
        group_costs = GroupCosts(Problem(profile, cluster, data.draw(st.integers(1, 5))))
        assume(group_costs.shares(group_costs.hosts[0]) is not None)
        stages = find_levels(group_costs)
        assert stages is not None
        values = nested_values(group_costs)
        assert values[tuple(stages)] == pytest.approx(min(values.values()), rel=1e-9)
        reach("several_devices", len(stages) > 1 or len(stages[0].group) > 1)
        reach("pipeline", len(stages) > 1)
        reach("across_hosts", any(len(set(cluster.host_index[list(stage.group)].tolist())) > 1 for stage in stages))
        reach("better", min(values.values()) * CLOSE < max(values.values()))

    check()


def test_hosts_that_differ_are_one_level() -> None:
    wire = Wire(bandwidth=1.0)
    same = twin_hosts(2, [1.0, 2.0], wire, wire)
    profile = equal_profile(4)
    assert find_levels(GroupCosts(Problem(profile, same, 2))) is not None
    others = [
        msgspec.structs.replace(same, devices=same.devices[:3]),
        msgspec.structs.replace(same, devices=(*same.devices[:2], *same.devices[:1:-1])),
        msgspec.structs.replace(
            same, hosts=(same.hosts[0], msgspec.structs.replace(same.hosts[1], inside=Wire(bandwidth=2.0)))
        ),
        one_host(4),
    ]
    for cluster in others:
        assert find_levels(GroupCosts(Problem(profile, cluster, 2))) is None


def test_by_hand() -> None:
    # Nothing to send and nothing to reduce: any even split takes 12 / 4 = 3 s, and one stage has the least to fill.
    free = equal_profile(4)
    assert bottleneck_of(free, one_host(4), 2) == (3.0, [(4, 4)])
    # Two devices, 1 byte/s: reducing 4 * 6 bytes takes 24 s, 12 s per micro-batch. So two stages of two layers.
    heavy = equal_profile(4, parameter_bytes=6)
    assert bottleneck_of(heavy, one_host(2), 2) == (6.0, [(2, 1), (4, 1)])
    # With 24 micro-batches the all-reduce adds 1 s to 6 s; cuts of 4 bytes would take 8 s both ways.
    wide = equal_profile(4, parameter_bytes=6, cut_bytes=4)
    assert bottleneck_of(wide, one_host(2), 24) == (7.0, [(4, 2)])
    # Without replication, 8 s for the channel is still better than 12 s on one device.
    unreplicated = pipedream(Problem(wide, one_host(2), 24), replication=False)
    assert [stage.num_replicas for stage in unreplicated.stages] == [1, 1]
    # Devices of speed 1 and 2: 3 and 6 of nine seconds' work for 3 s each.
    unequal = pipedream(Problem(equal_profile(3), cluster_of([1.0, 2.0]), 1), replication=False)
    assert [stage.stop for stage in unequal.stages] == [1, 3]


def bottleneck_of(profile: Profile, cluster: Cluster, num: int) -> tuple[float, list[tuple[int, int]]]:
    problem = Problem(profile, cluster, num)
    plan = pipedream(problem)
    stages = [
        Stage(stage.start, stage.stop, tuple(cluster.index[replica.device] for replica in stage.forward))
        for stage in plan.stages
    ]
    shape = [(stage.stop, stage.num_replicas) for stage in plan.stages]
    return bottleneck_s(GroupCosts(problem), stages), shape


def test_a_pipeline_inside_every_host() -> None:
    # Two hosts of two, two layers of 3 s, 100 micro-batches. A layer on the same device of both hosts takes 1.5 s and
    # 100 bytes / 10 bytes/s = 10 s for its reduction: 1.6 s. The whole model on all four: 1.5 s and 30 s for 200 bytes:
    # 1.8 s. One layer per host would send 1000 bytes over links of 10 bytes/s; inside a host that takes little.
    profile = equal_profile(2, parameter_bytes=100, cut_bytes=1000)
    cluster = twin_hosts(2, [1.0, 1.0], Wire(bandwidth=1e4), Wire(bandwidth=10.0))
    twins = msgspec.structs.replace(
        cluster, devices=tuple(msgspec.structs.replace(device, kind="k") for device in cluster.devices)
    )
    plan = pipedream(Problem(profile, twins, 100))
    groups = [[replica.device for replica in stage.forward] for stage in plan.stages]
    assert groups == [["h0d0", "h1d0"], ["h0d1", "h1d1"]]
    assert bottleneck_of(profile, twins, 100)[0] == pytest.approx(1.6)


@reaches(several_devices=0.05, replicated=0.03, pipeline=0.03, limited=0.03)
@examples(200)
@given(profiles(), clusters() | clusters(fast=True), st.integers(1, 5), st.sampled_from([True, False]), st.data())
def test_plans_prove(profile: Profile, cluster: Cluster, num: int, replication: bool, data: st.DataObject) -> None:
    most = min(cluster.num_devices, profile.num_units)
    num_stages = data.draw(st.sampled_from([None, *range(1, most + 1)]))
    problem = Problem(profile, cluster, num, pipeline_depth=num_stages)
    plan = pipedream(problem, replication=replication)
    assert plan == pipedream(problem, replication=replication)
    assert (plan.planner, plan.schedule) == ("pipedream", "1f1b")
    used = [group_device.device for stage in plan.stages for group_device in stage.forward]
    assert len(used) == len(set(used))
    assert set(used) <= {device.name for device in cluster.devices[:num_stages]}
    evaluate(plan, profile, cluster, within_memory=False)
    reach("several_devices", len(used) > 1)
    reach("replicated", any(stage.num_replicas > 1 for stage in plan.stages))
    reach("pipeline", plan.num_stages > 1)
    reach("limited", num_stages is not None and num_stages < cluster.num_devices)


def test_many_devices() -> None:
    counts = replica_counts(200)
    assert counts[:4] == [1, 2, 3, 4]
    assert counts[-1] == 200
    assert all(a < b <= -(-a * 4 // 3) for a, b in pairwise(counts))
    plan = pipedream(Problem(equal_profile(3, parameter_bytes=1), one_host(70, bandwidth=1e9), 4))
    assert len(plan.devices) == 70


def test_very_slow_devices_are_not_used() -> None:
    for speeds, used in (([1.0, 1e-11], "d0"), ([1e-11, 1.0], "d1")):
        assert pipedream(Problem(equal_profile(2), cluster_of(speeds), 4)).devices == (used,)
