"""Device counts: the order of growth, the fewest devices that meet a target, and plans on parts of a cluster."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.load import load_cluster
from penstock.cluster.types import Cluster, Device
from penstock.errors import InputError
from penstock.plan.types import Plan
from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.spp.planner import spp
from penstock.planners.problem import Problem
from penstock.planners.studies.device_counts import (
    DeviceChoice,
    choose_devices,
    growth_order,
    powers_and_ends,
    retarget_to_cluster,
    select_cluster,
)
from penstock.profile.types import Profile
from penstock.simulate.evaluation import evaluate
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import clusters, profiles, sizes_up_to
from tests.support.thoroughness import examples


def choose(problem: Problem, counts: range, under_s: float | None = None) -> DeviceChoice:
    def plan_on(part: Cluster) -> Plan:
        return balanced(Problem(problem.profile, part, problem.num_microbatches))

    return choose_devices(problem, counts, plan_on, under_s=under_s)


def test_by_hand() -> None:
    # Eight layers of 3 s, 8 micro-batches, 1F1B of n equal stages: (8 + n - 1) * 24 / n s.
    problem = Problem(equal_profile(8), one_host(8), 8)
    by_count = {item.num_devices: item for item in choose(problem, range(1, 9)).counts}
    for num in (1, 2, 4, 8):
        outcome = by_count[num].outcome
        assert outcome is not None
        assert outcome.iteration_s == pytest.approx((7 + num) * 24 / num)
        assert by_count[num].speed_up == pytest.approx(8 * num / (7 + num))
        assert by_count[num].efficiency == pytest.approx(8 / (7 + num))
    best = choose(problem, range(1, 9)).best
    assert best is not None
    assert best.num_devices == 8


def test_counts_in_any_order() -> None:
    problem = Problem(equal_profile(33), one_host(33), 1)

    def plan_on(part: Cluster) -> Plan:
        return balanced(Problem(problem.profile, part, problem.num_microbatches))

    choice = choose_devices(problem, [32, 33, 1, 32], plan_on)
    assert [item.num_devices for item in choice.counts] == [1, 32, 33]
    for counts in ([], [0, 1], [1, 34]):
        with pytest.raises(InputError, match="number of devices must be at least 1 and at most 33"):
            choose_devices(problem, counts, plan_on)


def test_the_fewest_under_a_target() -> None:
    # 192 s of work: 1 device takes 192 s, 2 take 108, 3 (stages of 3, 3 and 2 layers) 90, 4 take 66.
    problem = Problem(equal_profile(8), one_host(8), 8)
    choice = choose(problem, range(1, 9), under_s=67.0)
    assert choice.best is not None
    assert choice.best.num_devices == 4
    assert [item.num_devices for item in choice.counts] == [1, 2, 3, 4]
    assert choice.counts[0].plan is None
    assert choice.counts[0].bound_s >= 67.0
    assert choose(problem, range(1, 9), under_s=20.0).best is None


def test_large_range_is_bisected() -> None:
    problem = Problem(equal_profile(40), one_host(40), 8)
    one_by_one = next(num for num in range(1, 41) if choose(problem, range(num, num + 1)).counts[0].meets(200.0))
    choice = choose(problem, range(1, 41), under_s=200.0)
    assert choice.best is not None
    assert choice.best.num_devices == one_by_one
    assert len(choice.counts) < 16
    assert [item.num_devices for item in choose(problem, range(1, 41)).counts] == [1, 2, 4, 8, 16, 32, 40]
    assert powers_and_ends(range(5, 8)) == [5, 7]


def test_target_requires_a_plan_that_fits() -> None:
    # One device would be fast enough, but 8 layers of 100 bytes need two.
    profile = equal_profile(8, saved_bytes=100)
    problem = Problem(profile, one_host(4, memory_bytes=900), 1)
    choice = choose(problem, range(1, 5), under_s=1000.0)
    assert choice.best is not None
    assert choice.best.num_devices == 1
    tight = choose(Problem(profile, one_host(4, memory_bytes=500), 1), range(1, 5), under_s=1000.0)
    assert tight.best is not None
    assert tight.best.num_devices == 2
    assert tight.counts[0].outcome is not None
    assert not tight.counts[0].outcome.fits


def test_hosts_are_filled_one_after_the_other() -> None:
    cluster = load_cluster("2 x 4 x T4 @ 10 GB/s / 1 GB/s")
    profile = equal_profile(8)
    assert growth_order(Problem(profile, cluster, 1)) == list(range(8))
    quick = tuple(
        msgspec.structs.replace(device, speed=2.0) if index >= 4 else device
        for index, device in enumerate(cluster.devices)
    )
    order = growth_order(Problem(profile, msgspec.structs.replace(cluster, devices=quick), 1))
    assert sorted(order[:4]) == [4, 5, 6, 7]
    assert order[4:] == [3, 2, 1, 0]


def test_the_quickest_device_is_the_first() -> None:
    cluster = one_host(4)
    devices = (*cluster.devices[:2], Device(name="quick", host="h", kind="k", speed=3.0), cluster.devices[3])
    order = growth_order(Problem(equal_profile(2), msgspec.structs.replace(cluster, devices=devices), 1))
    assert order[0] == 2
    assert sorted(order) == [0, 1, 2, 3]


@reaches(part=0.05, reordered=0.05, several_devices=0.03)
@examples(40)
@given(profiles(), clusters(), st.integers(1, 4), st.data())
def test_plan_for_a_part_is_as_fast_in_the_whole_cluster(
    profile: Profile, cluster: Cluster, num: int, data: st.DataObject
) -> None:
    problem = Problem(profile, cluster, num)
    count = data.draw(sizes_up_to(cluster.num_devices))
    order = growth_order(problem)
    assert sorted(order) == list(range(cluster.num_devices))
    part = select_cluster(problem, count)
    assert {device.name for device in part.devices} == {cluster.devices[index].name for index in order[:count]}
    for planner in (balanced, spp):
        plan = planner(Problem(profile, part, num))
        here = evaluate(plan, profile, part).timeline.iteration_s
        assert evaluate(retarget_to_cluster(plan, cluster), profile, cluster).timeline.iteration_s == here
        reach("several_devices", len(plan.devices) > 1 and count < cluster.num_devices)
    reach("part", count < cluster.num_devices)
    reach("reordered", order != sorted(order))


@pytest.mark.parametrize("counts", [range(3), range(2, 6), range(3, 3)])
def test_invalid_device_counts(counts: range) -> None:
    with pytest.raises(InputError, match="number of devices must be at least 1 and at most 4"):
        choose(Problem(equal_profile(4), one_host(4), 2), counts)
