"""Prices of groups: by hand, and equal to what a plan with those groups costs."""

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT
from penstock.plan.pricing.pricing import price
from penstock.planners.costs.replica_groups import BACKWARD, FORWARD, GroupCosts, reduce_price
from penstock.planners.problem import Problem
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import Case, clusters, profiles, reach_features
from tests.support.thoroughness import examples


def hosts_of(
    sizes: list[int],
    *,
    inside: float = 100.0,
    between: float = 10.0,
    interface: float | None = None,
    latency_s: float = 0.0,
) -> Cluster:
    """Hosts with these numbers of equal devices."""
    return Cluster(
        name="hosts",
        hosts=tuple(
            Host(name=f"h{number}", inside=Wire(bandwidth=inside), interface_bandwidth=interface)
            for number in range(len(sizes))
        ),
        devices=tuple(
            Device(name=f"h{number}d{index}", host=f"h{number}", kind="k")
            for number, size in enumerate(sizes)
            for index in range(size)
        ),
        between=Wire(bandwidth=between, latency_s=latency_s),
    )


def test_devices_host_by_host() -> None:
    cluster = hosts_of([2, 2])
    mixed = msgspec.structs.replace(cluster, devices=tuple(cluster.devices[index] for index in (2, 0, 3, 1)))
    assert GroupCosts(Problem(equal_profile(4), mixed, 1)).hosts == ((0, 2), (1, 3))
    assert GroupCosts(Problem(equal_profile(4), mixed, 1)).devices == (0, 2, 1, 3)
    assert GroupCosts(Problem(equal_profile(4), mixed, 1, pipeline_depth=3)).devices == (0, 2, 1)


def test_shares_follow_speed() -> None:
    group_costs = GroupCosts(Problem(profile_of([(1.0, 1.0, 1.0)]), cluster_of([1.0, 3.0, 1e-12]), 1))
    assert group_costs.shares((0, 1)) == pytest.approx((0.25, 0.75))
    assert group_costs.shares((2,)) == (1.0,)
    assert group_costs.shares((0, 2)) is None  # 1e-12 of the rows is less than a plan can say
    idle = GroupCosts(Problem(profile_of([(0.0, 0.0, 0.0)]), cluster_of([1.0, 3.0]), 1))
    assert idle.shares((0, 1)) == (0.5, 0.5)


def test_seconds_of_a_group() -> None:
    # Three layers of F = 1 and I + W = 2; both devices of a group of speeds 1 and 3 take a quarter of the time.
    group_costs = GroupCosts(Problem(equal_profile(3), cluster_of([1.0, 3.0]), 1))
    assert group_costs.seconds((0, 1), 1, 3, FORWARD) == pytest.approx(2 / 4)
    assert group_costs.seconds((0, 1), 1, 3, BACKWARD) == pytest.approx(4 / 4)
    assert group_costs.seconds((1,), 0, 3, FORWARD + BACKWARD) == pytest.approx(9 / 3)
    half = group_costs.sums((0,), FORWARD, portion=0.5)
    assert half.tolist() == [[0.0, 0.5, 1.0, 1.5]]


def test_reductions_by_hand() -> None:
    assert reduce_price(one_host(2), [0]) == (0.0, 0.0)
    # Two devices send everything once each way: 2 (2-1)/2 = 1 byte at 1 byte/s, in two rounds of 3 s.
    assert reduce_price(one_host(2, latency_s=3.0), [0, 1]) == (6.0, 1.0)
    # Eight on two hosts: 2 * 7/8 bytes over links of 10, or over interfaces of 5; 14 rounds with the longest latency.
    assert reduce_price(hosts_of([4, 4], latency_s=0.5), range(8)) == pytest.approx((7.0, 1.75 / 10))
    assert reduce_price(hosts_of([4, 4], interface=5.0), range(8)) == pytest.approx((0.0, 1.75 / 5))
    assert reduce_price(hosts_of([8], interface=5.0), range(8)) == pytest.approx((0.0, 1.75 / 100))


def test_channels_by_hand() -> None:
    # One device to two of another host, half to each over its own link of 10; an interface of 8 carries both halves.
    free = GroupCosts(Problem(equal_profile(3), hosts_of([1, 2], latency_s=0.25), 1)).channel((0,), (1, 2))
    assert free.forward == free.backward == pytest.approx((0.25, 0.5 / 10))
    shared = GroupCosts(Problem(equal_profile(3), hosts_of([1, 2], interface=8.0), 1)).channel((0,), (1, 2))
    assert shared.forward == pytest.approx((0.0, 1 / 8))
    assert shared.both_ways_s(16.0) == pytest.approx(4.0)


def channel_of(costs: Costs, what: int) -> float:
    """Seconds of the activations or gradients between two stages: the busiest resource, and the longest latency."""
    flows, cluster = costs.flows, costs.cluster
    loads: dict[object, float] = {}
    latency = 0.0
    for flow in np.flatnonzero(flows.what == what).tolist():
        source, target, size = int(flows.source[flow]), int(flows.target[flow]), float(flows.num_bytes[flow])
        latency = max(latency, float(cluster.latency_s[source, target]))
        loads[source, target] = size / float(cluster.bandwidth[source, target])
        ends = int(cluster.host_index[source]), int(cluster.host_index[target])
        if ends[0] != ends[1]:
            for side, host in zip(("out", "in"), ends, strict=True):
                speed = cluster.hosts[host].interface_bandwidth
                if speed is not None:
                    loads[side, host] = loads.get((side, host), 0.0) + size / speed
    return latency + max(loads.values())


@reaches(replicated=0.1, both_replicated=0.01, shared=0.02, reduced=0.1)
@examples(150)
@given(st.data())
def test_groups_cost_what_a_plan_of_them_costs(data: st.DataObject) -> None:
    profile = msgspec.structs.replace(data.draw(profiles().filter(lambda item: item.num_units > 1)), ties=())
    cluster = data.draw(clusters(max_devices=6).filter(lambda item: item.num_devices > 1))
    problem = Problem(profile, cluster, 2, micro_batch_size=data.draw(st.sampled_from([1, 4, 6])))
    group_costs = GroupCosts(problem)
    order = data.draw(st.permutations(range(cluster.num_devices)))
    first = data.draw(st.sampled_from(range(1, cluster.num_devices)))
    groups = [tuple(order[:first]), tuple(order[first:])]
    assume(all(group_costs.shares(group) for group in groups))
    cut = data.draw(st.integers(1, profile.num_units - 1))
    plan = problem.plan("test", [0, cut, profile.num_units], [group_costs.plan_group(group) for group in groups])
    costs = price(plan, profile, cluster)
    for number, (start, stop) in enumerate([(0, cut), (cut, profile.num_units)]):
        replicas = costs.replicas(number)
        back = costs.input_grad_s[replicas] + costs.weight_grad_s[replicas]
        assert group_costs.seconds(groups[number], start, stop, FORWARD) == pytest.approx(
            costs.forward_s[replicas].max()
        )
        assert group_costs.seconds(groups[number], start, stop, BACKWARD) == pytest.approx(back.max())
        rings = [item.ring for item in costs.reductions if item.number == number]
        size = group_costs.parameter_sums[stop] - group_costs.parameter_sums[start]
        paid = sum(ring.occupancy_s + ring.latency_s for ring in rings)
        assert group_costs.reduce_price(groups[number]).of(float(size)) == pytest.approx(paid)
    channel, size = group_costs.channel(*groups), float(group_costs.cut_bytes[cut])
    assert channel.forward.of(size) == pytest.approx(channel_of(costs, ACTIVATION))
    assert channel.backward.of(size) == pytest.approx(channel_of(costs, GRADIENT))
    reach_features(Case(profile, cluster, plan))
    reach("both_replicated", all(len(group) > 1 for group in groups))
    reach("reduced", any(item.ring.occupancy_s > 0 for item in costs.reductions))


def test_numbers_stay_finite() -> None:
    wire = Wire(bandwidth=1e-300, latency_s=1e300)
    devices = tuple(Device(name=name, host="h", kind="k") for name in "ab")
    cluster = Cluster(name="hopeless", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    group_costs = GroupCosts(Problem(equal_profile(2, cut_bytes=10**15, parameter_bytes=10**15), cluster, 1))
    assert np.isfinite(group_costs.channel((0,), (1,)).both_ways_s(1e18))
    assert np.isfinite(group_costs.reduce_price((0, 1)).of(1e18))
