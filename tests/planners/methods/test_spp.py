"""SPP: its table against a plain recursion and that against all plans there are; the plan against its candidates."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.load import load_cluster
from penstock.cluster.types import Cluster
from penstock.plan.pricing.allreduce_ring import reduce_ring
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT
from penstock.plan.pricing.pricing import price
from penstock.plan.pricing.row_overlap import overlaps
from penstock.plan.types import Group, Plan, Replica
from penstock.planners.methods.spp.device_order import order_devices
from penstock.planners.methods.spp.partition import MAX_POSITIONS, Partition, Row, _edges, partition, partitions
from penstock.planners.methods.spp.planner import least_seconds, spp
from penstock.planners.problem import Problem
from penstock.profile.row_costs import fit
from penstock.profile.types import Profile
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.schedules.methods.pe import pe
from penstock.simulate.evaluation import evaluate_costs
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import clusters, profiles, sizes_up_to
from tests.support.thoroughness import examples


def untied(profile: Profile) -> Profile:
    return msgspec.structs.replace(profile, ties=())


def without_frozen_layers(problem: Problem) -> Problem:
    """The table counts gradients in front of the first trained layer too, which have no bytes in a plan."""
    units = [msgspec.structs.replace(unit, trained_parameter_bytes=None) for unit in problem.profile.units]
    return replace(problem, profile=msgspec.structs.replace(problem.profile, units=tuple(units)))


def group_of(problem: Problem, devices: Sequence[int]) -> Group:
    """A group with rows by speed, computed plainly."""
    seconds = {device: float(problem.clock.work(device)[-1]) for device in range(problem.cluster.num_devices)}
    speeds = [1 / seconds[device] if all(seconds.values()) else 1.0 for device in devices]
    total = math.fsum(speeds)
    names = [problem.cluster.devices[device].name for device in devices]
    return tuple(Replica(name, speed / total) for name, speed in zip(names, speeds, strict=True))


def interface_s(cluster: Cluster, shares: list[tuple[int, int, float]]) -> float:
    """Seconds that the busiest interface needs for each byte of these (source, target, share)."""
    busy: dict[tuple[int, bool], float] = {}
    for source, target, share in shares:
        hosts = int(cluster.host_index[source]), int(cluster.host_index[target])
        if hosts[0] != hosts[1]:
            for host, outgoing in ((hosts[0], True), (hosts[1], False)):
                bandwidth = cluster.hosts[host].interface_bandwidth
                busy[host, outgoing] = busy.get((host, outgoing), 0.0) + (share / bandwidth if bandwidth else 0.0)
    return max(busy.values(), default=0.0)


def stage_s(problem: Problem, start: int, stop: int, group: Group) -> float:
    """M times the work of the slowest replica, and the all-reduce."""
    cluster, clock = problem.cluster, problem.clock
    work = 0.0
    for replica in group:
        device = cluster.index[replica.device]
        sums = [clock.prefix(device, replica.share, part) for part in ("forward_s", "input_grad_s", "weight_grad_s")]
        work = max(work, sum(float(values[stop] - values[start]) for values in sums))
    seconds = problem.num_microbatches * work
    if len(group) > 1:
        size = sum(unit.trained_bytes for unit in problem.profile.units[start:stop])
        # The ring for one byte; the best ring for no bytes is arbitrary.
        ring = reduce_ring(cluster, [cluster.index[replica.device] for replica in group], 1.0)
        seconds += ring.occupancy_s * size + ring.latency_s
    return seconds


def channel_s(problem: Problem, cut: int, left: Group, right: Group) -> float:
    """M times the seconds of both directions."""
    cluster = problem.cluster
    size = float(fit(problem.profile, problem.profile.kinds[0]).at(problem.rows_per_microbatch).cut_bytes[cut - 1])
    pairs = [
        (cluster.index[left[item.left].device], cluster.index[right[item.right].device], item.share)
        for item in overlaps([replica.share for replica in left], [replica.share for replica in right])
    ]
    seconds = 0.0
    for direction in (pairs, [(target, source, share) for source, target, share in pairs]):
        links = max(share / float(cluster.bandwidth[source, target]) for source, target, share in direction)
        seconds += max(links, interface_s(cluster, direction))
    return problem.num_microbatches * size * seconds


def plain(problem: Problem, order: Sequence[int], num_stages: int, *, replication: bool = True) -> float:
    """The recurrence as it is written."""
    most = len(order) if replication else 1

    @cache
    def group(begin: int, end: int) -> Group:
        return group_of(problem, order[begin:end])

    @cache
    def best(units: int, stages: int, begin: int, end: int) -> float:
        if stages == 1:
            return stage_s(problem, 0, units, group(begin, end))
        return min(
            (
                max(
                    best(cut, stages - 1, first, begin),
                    channel_s(problem, cut, group(first, begin), group(begin, end)),
                    stage_s(problem, cut, units, group(begin, end)),
                )
                for cut in range(stages - 1, units)
                for first in range(max(0, begin - most), begin)
            ),
            default=math.inf,
        )

    spans = [(begin, end) for end in range(1, len(order) + 1) for begin in range(max(0, end - most), end)]
    return min(best(problem.profile.num_units, num_stages, *span) for span in spans)


def all_plans(problem: Problem, order: Sequence[int], num_stages: int) -> Iterator[Plan]:
    """Every division of the layers into stages, on all runs of neighbours."""
    units = problem.profile.num_units
    for inner in combinations(range(1, units), num_stages - 1):
        for edges in combinations(range(len(order) + 1), num_stages + 1):
            groups = [group_of(problem, order[begin:end]) for begin, end in pairwise(edges)]
            yield problem.plan("all", [0, *inner, units], groups)


def bottleneck_s(costs: Costs) -> float:
    """The bottleneck of a priced plan."""
    num, flows, cluster = costs.num_microbatches, costs.flows, costs.cluster
    reduced = {
        item.number: item.ring.occupancy_s + reduce_ring(cluster, item.ring.devices, 1.0).latency_s
        for item in costs.reductions
    }
    work = costs.forward_s + costs.input_grad_s + costs.weight_grad_s
    seconds = [
        num * float(work[costs.replicas(stage)].max()) + reduced.get(stage, 0.0)
        for stage in range(costs.plan.num_stages)
    ]
    for stage in range(costs.plan.num_stages - 1):
        both_directions = 0.0
        for what, replica in ((ACTIVATION, flows.source_replica), (GRADIENT, flows.target_replica)):
            chosen = np.flatnonzero((flows.what == what) & (costs.replica_stage[replica] == stage)).tolist()
            messages = [(int(flows.source[at]), int(flows.target[at]), float(flows.num_bytes[at])) for at in chosen]
            links = max(size / float(cluster.bandwidth[source, target]) for source, target, size in messages)
            both_directions += max(links, interface_s(cluster, messages))
        seconds.append(num * both_directions)
    return max(seconds)


@st.composite
def problems(draw: st.DrawFn, max_units: int = 4, max_devices: int = 4) -> Problem:
    profile, cluster = draw(profiles(max_units=max_units)), draw(clusters(max_devices=max_devices))
    num = draw(st.sampled_from([1, 2, 5]))
    rows = draw(st.sampled_from([None, 1, 6]))
    return Problem(untied(profile), cluster, num, micro_batch_size=rows, split_backward=draw(st.booleans()))


def test_plain_recursion_finds_the_best_of_all_plans() -> None:
    @reaches(pipeline=0.1, better=0.1)
    @examples(40)
    @given(problems().map(without_frozen_layers))
    def check(problem: Problem) -> None:
        order = order_devices(problem.cluster)
        for num_stages in range(1, min(len(order), problem.profile.num_units) + 1):
            plans = all_plans(problem, order, num_stages)
            bottlenecks = [bottleneck_s(price(plan, problem.profile, problem.cluster)) for plan in plans]
            expected = min(bottlenecks)
            assert plain(problem, order, num_stages) == pytest.approx(expected, rel=1e-9, abs=1e-12)
            reach("pipeline", num_stages > 1)
            reach("better", expected < max(bottlenecks) * (1 - 1e-9))

    check()


def test_table_is_the_plain_recursion() -> None:
    @reaches(pipeline=0.1, replicated=0.05, least_met=0.05)
    @examples(480)
    @given(problems(max_units=7, max_devices=5), st.booleans())
    def check(problem: Problem, replication: bool) -> None:
        order = order_devices(problem.cluster)
        items = partitions(problem, order, replication=replication)
        assert [len(item.groups) for item in items] == list(range(1, min(len(order), problem.profile.num_units) + 1))
        for number, item in enumerate(items, start=1):
            expected = plain(problem, order, number, replication=replication)
            assert item.bottleneck_s == pytest.approx(expected, rel=1e-9, abs=1e-12)
            # The cuts and groups are those of that bottleneck.
            costs = price(problem.plan("table", item.cuts, item.groups), problem.profile, problem.cluster)
            assert bottleneck_s(costs) == pytest.approx(expected, rel=1e-9, abs=1e-12)
            assert replication or all(len(group) == 1 for group in item.groups)
            assert item.bottleneck_s / 2 <= item.least_s <= item.bottleneck_s * (1 + 1e-12)
            assert item.least_s <= seconds_of(problem, item) * (1 + 1e-9)
            reach("pipeline", number > 1)
            reach("replicated", any(len(group) > 1 for group in item.groups))
            reach("least_met", number > 1 and item.least_s > 0.9 * item.bottleneck_s > 0)

    check()


def seconds_of(problem: Problem, item: Partition) -> float:
    costs = price(problem.plan("any", item.cuts, item.groups), problem.profile, problem.cluster)
    return evaluate_costs(costs, program=pe(costs), within_memory=False).timeline.iteration_s


@reaches(several_devices=0.1, better=0.03, differ=0.1)
@examples(30)
@given(profiles(), clusters(), st.sampled_from([1, 3, 8]), st.booleans())
def test_never_worse_than_its_candidates(profile: Profile, cluster: Cluster, num: int, split: bool) -> None:
    problem = Problem(profile, cluster, num, schedule="pe", split_backward=split)
    plan = spp(problem)
    assert (plan.planner, plan.schedule, plan.split_backward) == ("spp", "pe", split)
    assert spp(problem) == plan
    costs = price(plan, profile, cluster)
    program = pe(costs)
    prove(lower(program, costs), costs, within_memory=False)
    seconds = evaluate_costs(costs, program=program, within_memory=False).timeline.iteration_s
    assert least_seconds(costs) <= seconds * (1 + 1e-12)
    for order in (order_devices(cluster), order_devices(cluster)[::-1]):
        everything = Partition((0, profile.num_units), (Row(problem, order).group(0, len(order)),), 0.0, 0.0)
        others = [everything, *partitions(problem, order, replication=False), *partitions(problem, order)]
        taken = [seconds_of(problem, item) for item in others]
        assert seconds <= min(taken) * (1 + 1e-12)
        reach("better", seconds < min(taken) * (1 - 1e-9))
        reach("differ", min(taken) < max(taken) * (1 - 1e-9))
    reach("several_devices", len(plan.devices) > 1)


@reaches(limited=0.05)
@examples(30)
@given(profiles(), clusters(), st.data())
def test_only_the_first_devices_are_used(profile: Profile, cluster: Cluster, data: st.DataObject) -> None:
    most = data.draw(sizes_up_to(min(cluster.num_devices, profile.num_units)))
    plan = spp(Problem(profile, cluster, 2, pipeline_depth=most))
    assert set(plan.devices) <= {device.name for device in cluster.devices[:most]}
    reach("limited", most < cluster.num_devices)


def test_by_hand() -> None:
    # 4 layers of 3 s; 2 devices; M = 4. Two stages of 2 layers: 2 s + 4 * 6 + 4 = 30 s with nothing to send. One stage
    # on both: 4 * 6 = 24 s, and 8 bytes to reduce: 2 * 1/2 * 8 bytes / 1 byte per second = 8 s, so 32 s.
    problem = Problem(equal_profile(4, parameter_bytes=2), one_host(2), 4)
    one, two = partitions(problem, [0, 1])
    assert (one.cuts, one.bottleneck_s, len(one.groups[0])) == ((0, 4), 32.0, 2)
    assert (two.cuts, two.bottleneck_s) == ((0, 2, 4), 24.0)
    assert partition(problem, [0, 1], 2) == two
    assert partition(problem, [0, 1], 3) is None
    assert [stage.stop for stage in spp(problem).stages] == [2, 4]
    # With half of the parameters it is 28 s.
    assert spp(Problem(equal_profile(4, parameter_bytes=1), one_host(2), 4)).num_stages == 1
    # Without replicas one stage has one device: 4 * 12 s.
    alone, _ = partitions(problem, [0, 1], replication=False)
    assert (alone.bottleneck_s, len(alone.groups[0])) == (48.0, 1)


def test_slow_links_are_crossed_by_few_bytes() -> None:
    # Two hosts of two devices. Data parallelism would reduce over the slow link, so the pipeline crosses it instead,
    # and each host shares a stage.
    cluster = load_cluster("2 x 2 x T4 @ 1 GB/s / 1 MB/s")
    profile = equal_profile(4, parameter_bytes=10**7, cut_bytes=10)
    plan = spp(Problem(profile, cluster, 16))
    hosts = [{cluster.devices[cluster.index[replica.device]].host for replica in item.forward} for item in plan.stages]
    assert [(item.num_replicas, len(names)) for item, names in zip(plan.stages, hosts, strict=True)] == [(2, 1)] * 2
    assert [item.stop for item in plan.stages] == [2, 4]


def test_very_slow_device_gets_no_rows() -> None:
    cluster = one_host(3, bandwidth=1e9)
    slow = msgspec.structs.replace(cluster.devices[1], speed=1e-12)
    cluster = msgspec.structs.replace(cluster, devices=(cluster.devices[0], slow, cluster.devices[2]))
    plan = spp(Problem(equal_profile(4), cluster, 4))
    assert "d1" not in plan.devices


def test_where_stages_may_begin_and_end() -> None:
    assert _edges(np.zeros(5, dtype=np.int64), 8) == [0, 1, 2, 3, 4, 5]
    # 2 hosts of 8 and of 4 with room for 6: 3 pieces each.
    assert _edges(np.repeat([0, 1], [8, 4]), 6) == [0, 3, 6, 8, 10, 12]
    # 5 hosts of 2 with room for 3: every second host.
    assert _edges(np.repeat(np.arange(5), 2), 3) == [0, 4, 8, 10]


def test_more_devices_than_positions() -> None:
    cluster = load_cluster(f"{MAX_POSITIONS // 4} x 8 x T4 @ 100 GB/s / 1 GB/s")
    problem = Problem(equal_profile(6, cut_bytes=100, parameter_bytes=1000), cluster, 4)
    order = order_devices(cluster)
    sizes = {len(group) for item in partitions(problem, order) for group in item.groups}
    assert all(size % 2 == 0 for size in sizes)
    assert spp(problem).num_stages >= 1
