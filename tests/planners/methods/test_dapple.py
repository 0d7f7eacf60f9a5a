"""DAPPLE: no other stages with its placements have less latency, and it is never worse than data parallelism."""

import sys
from collections.abc import Iterator
from itertools import combinations, pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Plan
from penstock.planners.costs.replica_groups import GroupCosts
from penstock.planners.methods.dapple import placement
from penstock.planners.methods.dapple.placement import (
    POLICIES,
    Taken,
    append_first,
    find_steps,
    fresh_first,
    scatter_first,
)
from penstock.planners.methods.dapple.planner import _blocks, dapple, latency_s, pivot_latency_s
from penstock.planners.methods.pipedream.levels import Stage
from penstock.planners.problem import Problem
from penstock.profile.types import Profile
from penstock.simulate.evaluation import evaluate
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import clusters, profiles
from tests.support.thoroughness import examples

CLOSE = 1 + 1e-9

module = sys.modules["penstock.planners.methods.dapple.planner"]
"""`penstock.planners.methods.dapple.planner` as an attribute is the function."""


def plain_latency(plan: Plan, profile: Profile, cluster: Cluster) -> float:
    """The latency around the worst pivot, from the price of the plan."""
    costs = price(plan, profile, cluster)
    flows = costs.flows
    jobs: list[tuple[float, float, float]] = []
    for stage in range(plan.num_stages):
        replicas = costs.replicas(stage)
        back = costs.input_grad_s[replicas] + costs.weight_grad_s[replicas]
        rings = [item.ring for item in costs.reductions if item.number == stage]
        reduction = sum(ring.occupancy_s + ring.latency_s for ring in rings)
        jobs.append((float(costs.forward_s[replicas].max()), float(back.max()), reduction))
        if stage + 1 == plan.num_stages:
            break
        channel = []
        for what, source in ((ACTIVATION, stage), (GRADIENT, stage + 1)):
            loads, latency = {}, 0.0
            for flow in np.flatnonzero((flows.what == what) & (costs.replica_stage[flows.source_replica] == source)):
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
            channel.append(latency + max(loads.values()))
        jobs.append((channel[0], channel[1], 0.0))
    worst = 0.0
    for pivot, (f, b, _) in enumerate(jobs):
        warm_up = sum(job[0] for job in jobs[: pivot + 1])
        steady = (plan.num_microbatches - 1) * (f + b)
        for job_index, (_, _, reduction) in enumerate(jobs):
            drain = sum(job[1] for job in jobs[job_index : pivot + 1])
            ahead = sum(job[1] for job in jobs[pivot + 1 : job_index])
            worst = max(worst, warm_up + steady + reduction + (drain if job_index <= pivot else -ahead))
    return worst


def all_stages(
    group_costs: GroupCosts, taken: Taken | None = None, start: int = 0, done: tuple[Stage, ...] = ()
) -> Iterator[tuple[Stage, ...]]:
    """Every division of the layers into stages, with every stage placed by every policy."""
    hosts, num_units = group_costs.hosts, group_costs.problem.profile.num_units
    sizes = tuple(len(host) for host in hosts)
    taken = taken or (0,) * len(sizes)
    if start == num_units:
        yield done
        return
    options = {policy(taken, sizes, count) for count in range(1, sum(sizes) - sum(taken) + 1) for policy in POLICIES}
    for after in sorted(options):
        spans = zip(hosts, taken, after, strict=True)
        group = tuple(device for host, first, last in spans for device in host[first:last])
        if group_costs.shares(group) is not None:
            for stop in range(start + 1, num_units + 1):
                yield from all_stages(group_costs, after, stop, (*done, Stage(start, stop, group)))


def plan_of(group_costs: GroupCosts, stages: tuple[Stage, ...]) -> Plan:
    cuts = [0, *(stage.stop for stage in stages)]
    return group_costs.problem.plan("test", cuts, [group_costs.plan_group(stage.group) for stage in stages])


def stages_of(plan: Plan, cluster: Cluster) -> list[Stage]:
    return [
        Stage(stage.start, stage.stop, tuple(cluster.index[replica.device] for replica in stage.forward))
        for stage in plan.stages
    ]


def test_no_stages_are_better() -> None:
    @reaches(several_candidates=0.1, several_devices=0.03, pipeline=0.01, replicated=0.02, better=0.1)
    @examples(240)
    @given(profiles(max_units=4), clusters(max_devices=4) | clusters(max_devices=4, fast=True), st.integers(1, 6))
    def check(profile: Profile, cluster: Cluster, num: int) -> None:
        profile = msgspec.structs.replace(profile, ties=())
        problem = Problem(profile, cluster, num)
        group_costs = GroupCosts(problem)
        single = {(Stage(0, profile.num_units, (device,)),) for device in group_costs.devices}
        every = single | set(all_stages(group_costs))
        latencies = [plain_latency(plan_of(group_costs, stages), profile, cluster) for stages in every]
        best = min(latencies)
        plan = dapple(problem)
        assert plain_latency(plan, profile, cluster) == pytest.approx(best, rel=1e-9)
        assert latency_s(group_costs, stages_of(plan, cluster)) == pytest.approx(best, rel=1e-9)
        reach("several_candidates", len(every) > 1)
        reach("better", best < max(latencies) * (1 - 1e-9))
        reach("several_devices", len(plan.devices) > 1)
        reach("pipeline", plan.num_stages > 1)
        reach("replicated", any(stage.num_replicas > 1 for stage in plan.stages))

    check()


def test_latency_by_hand() -> None:
    # One job: 3 micro-batches of 1 + 2 s, and 5 s of reduction.
    assert pivot_latency_s([1], [2], [5], 3) == 14.0
    # Three jobs, 10 micro-batches, the pivot in the middle: 1 + 4, 9 * 8, and 4 + 2 s back to the front.
    assert pivot_latency_s([1, 4, 1], [2, 4, 2], [0, 0, 0], 10) == 83.0
    # A reduction of 30 s behind the pivot starts when the pivot's last backward does: 1 + 4 + 72 + 30.
    assert pivot_latency_s([1, 4, 1], [2, 4, 2], [0, 0, 30], 10) == 107.0
    # A job further behind was done 2 s before that.
    assert pivot_latency_s([1, 4, 1, 1], [2, 4, 2, 2], [0, 0, 0, 30], 10) == 105.0


def test_stages_by_hand() -> None:
    # Nothing to send or reduce: one stage on both has no fill, (2 * 4 layers * 3 s) / 2 = 12 s.
    free = equal_profile(4)
    assert shape(Problem(free, one_host(2), 2)) == [(4, 2)]
    # 100 s for the reduction: two stages of two layers take 2 + 2 + 6 + 4 + 4 = 18 s, and one device 24 s.
    heavy = equal_profile(4, parameter_bytes=25)
    assert shape(Problem(heavy, one_host(2), 2)) == [(2, 1), (4, 1)]
    # With a single micro-batch two stages are no faster than one, and cuts of 1 byte cost 2 s more.
    single = equal_profile(4, parameter_bytes=25, cut_bytes=1)
    assert shape(Problem(single, one_host(2), 1)) == [(4, 1)]


def shape(problem: Problem) -> list[tuple[int, int]]:
    return [(stage.stop, stage.num_replicas) for stage in dapple(problem).stages]


@reaches(better=0.05, several_devices=0.05, limited=0.03)
@examples(60)
@given(profiles(), clusters(), st.integers(1, 5), st.data())
def test_plans_prove_and_are_no_worse_than_data_parallelism(
    profile: Profile, cluster: Cluster, num: int, data: st.DataObject
) -> None:
    most = min(cluster.num_devices, profile.num_units)
    num_stages = data.draw(st.sampled_from([None, *range(1, most + 1)]))
    problem = Problem(profile, cluster, num, pipeline_depth=num_stages)
    plan = dapple(problem)
    assert plan == dapple(problem)
    assert (plan.planner, plan.schedule) == ("dapple", "1f1b")
    used = [group_device.device for stage in plan.stages for group_device in stage.forward]
    assert len(used) == len(set(used))
    assert set(used) <= {device.name for device in cluster.devices[:num_stages]}
    evaluate(plan, profile, cluster, within_memory=False)
    group_costs = GroupCosts(problem)
    assert group_costs.shares(group_costs.devices) is not None  # speeds of random devices differ by little
    together = latency_s(group_costs, [Stage(0, profile.num_units, group_costs.devices)])
    own = latency_s(group_costs, stages_of(plan, cluster))
    assert own <= together * CLOSE
    reach("better", own * CLOSE < together)
    reach("several_devices", len(used) > 1)
    reach("limited", num_stages is not None and num_stages < cluster.num_devices)


def test_policies() -> None:
    sizes = (4, 4, 4)
    assert fresh_first((2, 0, 0), sizes, 6) == (2, 4, 2)
    assert fresh_first((2, 1, 4), sizes, 3) == (4, 2, 4)
    assert append_first((2, 1, 0), sizes, 6) == (4, 4, 1)
    assert scatter_first((0, 0, 0), sizes, 3) == (1, 1, 1)
    assert scatter_first((2, 1, 0), sizes, 3) == (4, 2, 0)
    assert scatter_first((4, 3, 0), sizes, 3) == (4, 4, 2)


STEP_COUNTS = {
    (1,): 1,
    (4,): 4 * 5 // 2,
    (3, 1, 2): 53,
    (4, 4, 4, 4): 4051,
    (8,) * 8: 6562,
    (3,) * 20: 60 * 61 // 2,
    (1,) * 64: 64 * 65 // 2,
    (8, 1) * 9: 81 * 82 // 2,
    (100,): 100 * 101 // 2,
}


@pytest.mark.parametrize(
    ("sizes", "count"), STEP_COUNTS.items(), ids=[f"{len(sizes)}x{sizes[0]}" for sizes in STEP_COUNTS]
)
def test_number_of_steps(sizes: Taken, count: int) -> None:
    """All steps of few devices, and steps in bricks or along a row of devices for many."""
    assert len(find_steps(sizes)) == count


@pytest.mark.parametrize(
    "sizes",
    [*STEP_COUNTS, (1,) * 150, (3,) * 120, (200,)],
    ids=lambda sizes: f"{len(sizes)}x{sizes[0]}",
)
def test_steps_fit_together(sizes: Taken) -> None:
    steps = find_steps(sizes)
    assert len(steps) == len(set(steps))
    sources = [step.before for step in steps]
    # Steps from the same state are adjacent, and come after all steps that lead there.
    first_seen = {source: number for number, source in reversed(list(enumerate(sources)))}
    assert sum(source != later for source, later in pairwise(sources)) + 1 == len(first_seen)
    for number, step in enumerate(steps):
        assert all(a <= b <= size for a, b, size in zip(step.before, step.after, sizes, strict=True))
        assert step.before != step.after
        assert first_seen.get(step.after, len(steps)) > number
        assert step.after in first_seen or step.after == sizes
    # All devices at once, and one at a time, are always among them.
    assert any(step.after == sizes for step in steps if sum(step.before) == 0)
    assert any(sum(step.after) == 1 for step in steps)


def test_limit_on_steps_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (3, 1, 2)
    every = set(find_steps(sizes))
    monkeypatch.setattr(placement, "MAX_STEPS", len(every))
    assert set(find_steps(sizes)) == every
    # With one step less: bricks of two devices, of which the hosts have 2, 1 and 1, and the row of single devices.
    monkeypatch.undo()
    devices = {0: 0, 1: 2, 2: 3}, {0: 0, 1: 1}, {0: 0, 1: 2}
    bricks = {
        tuple(tuple(host[count] for host, count in zip(devices, taken, strict=True)) for taken in step)
        for step in find_steps((2, 1, 1))
    }
    prefixes = [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (3, 1, 0), (3, 1, 1), (3, 1, 2)]
    row = set(combinations(prefixes, 2))
    assert bricks - row
    monkeypatch.setattr(placement, "MAX_STEPS", len(every) - 1)
    assert set(find_steps(sizes)) == bricks | row


def powers(total: int) -> set[tuple[int, int]]:
    """Steps along a row of devices or hosts that take a power of two of them, or all that are left."""
    return {
        (before, before + count)
        for before in range(total)
        for count in (*(2**power for power in range(20)), total - before)
        if before + count <= total
    }


@pytest.mark.parametrize(("num_hosts", "size"), [(150, 1), (120, 3), (130, 5)])
def test_many_hosts_are_taken_in_powers_of_two(num_hosts: int, size: int) -> None:
    """Whole hosts in powers of two, and single devices in powers of two."""
    sizes = (size,) * num_hosts
    steps = find_steps(sizes)
    expected = powers(num_hosts * size) | {(size * before, size * after) for before, after in powers(num_hosts)}
    assert {(sum(step.before), sum(step.after)) for step in steps} == expected
    assert len(steps) == len(expected)
    for step in steps:
        for taken in step:
            # Hosts are filled one after another.
            assert taken == append_first((0,) * num_hosts, sizes, sum(taken))


def test_one_large_host_is_taken_in_bricks() -> None:
    # 200 devices: bricks of two, and single devices in powers of two.
    pairs = {(2 * before, 2 * after) for before in range(100) for after in range(before + 1, 101)}
    assert {(step.before[0], step.after[0]) for step in find_steps((200,))} == pairs | powers(200)


def test_large_clusters_and_long_models(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tuple(Host(name=f"h{number}", inside=Wire(bandwidth=1e9)) for number in range(6))
    devices = tuple(Device(name=f"d{number}", host=f"h{number // 4}", kind="k") for number in range(24))
    cluster = Cluster(name="large", hosts=hosts, devices=devices, between=Wire(bandwidth=1e3))
    profile = profile_of([(1.0 + number % 3, 1.0, 1.0) for number in range(40)])
    monkeypatch.setattr(module, "MAX_BLOCKS", 10)
    monkeypatch.setattr(module, "MAX_WORK", 1.0)
    problem = Problem(profile, cluster, 8)
    plan = dapple(problem)
    group_costs = GroupCosts(problem)
    together = latency_s(group_costs, [Stage(0, 40, group_costs.devices)])
    assert latency_s(group_costs, stages_of(plan, cluster)) <= together * CLOSE
    evaluate(plan, profile, cluster, within_memory=False)


def test_blocks_end_at_small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BLOCKS", 2)
    monkeypatch.setattr(module, "MAX_WORK", 1.0)
    profile = equal_profile(8, cut_bytes=5)
    sizes = msgspec.structs.replace(profile.units[4].sizes[0], cut_bytes=1)
    thin = (*profile.units[:4], msgspec.structs.replace(profile.units[4], sizes=(sizes,)), *profile.units[5:])
    # Two parts meet in the middle; of the cuts between a quarter and three quarters, the one behind layer 4 is the
    # smallest.
    for units, cut in ((profile.units, 4), (thin, 5)):
        group_costs = GroupCosts(Problem(msgspec.structs.replace(profile, units=units), one_host(2), 1))
        assert _blocks(group_costs, 1).tolist() == [0, cut, 8]
    idle = equal_profile(8, forward_s=0.0, input_grad_s=0.0, weight_grad_s=0.0)
    assert len(_blocks(GroupCosts(Problem(idle, one_host(2), 1)), 1)) == 3


def test_very_slow_devices_are_not_used() -> None:
    assert dapple(Problem(equal_profile(2), cluster_of([1.0, 1e-11]), 4)).devices == ("d0",)
    # The row starts with the slow device, but the fastest device alone is always a candidate.
    assert dapple(Problem(equal_profile(2), cluster_of([1e-11, 1.0]), 4)).devices == ("d1",)
