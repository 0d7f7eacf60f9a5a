"""Bi-Partition: the best cuts by brute force, the published gains, and never worse than balanced."""

import importlib.util
import os
from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise, product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrays import Floats
from penstock.cluster.types import Cluster
from penstock.plan.shapes import Shape
from penstock.plan.types import Plan
from penstock.planners.methods.balanced import balanced, balanced_cuts
from penstock.planners.methods.bipartition.cuts import TwoSets, bottleneck, two_sets_of_cuts
from penstock.planners.methods.bipartition.kernel import furthest_cuts
from penstock.planners.methods.bipartition.planner import MAX_CUTS, bipartition, rate_between
from penstock.planners.methods.bipartition.priced_cuts import Joint, Row, priced_cuts
from penstock.planners.problem import Problem
from penstock.profile.row_costs import fit
from penstock.schedules.registry import SCHEDULES
from penstock.simulate.evaluation import evaluate
from tests.support.paths import REPOSITORY
from tests.support.plain_cuts import plain_furthest_cuts
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import clusters, profiles, sizes_up_to
from tests.support.thoroughness import examples

GAINS = {
    "pipedream/vgg16": [1.12, 1.04, 1.33, 1.27, 1.44, 1.44, 1.44],
    "hpgo/vgg19": [1.07, 1.15, 1.08, 1.16, 1.23, 1.22, 1.25],
    "pipedream/alexnet": [1.02, 1.10, 1.35, 1.35, 1.35, 1.35, 1.35],
    "pipedream/gnmt": [1.03, 1.14, 1.14, 1.35, 1.20, 1.20, 1.20],
    "hpgo/bert_large": [1.00, 1.00, 1.00, 1.03, 1.00, 1.14, 1.00],
    "hpgo/xlnet": [1.01, 1.02, 1.03, 1.02, 1.02, 1.13, 1.03],
    "hpgo/amoebanet_18": [1.00, 1.08, 1.01, 1.09, 1.14, 1.17, 1.09],
    "hpgo/gnmt_16": [1.02, 1.00, 1.06, 1.10, 1.20, 1.11, 1.24],
    "pipedream/resnet50": [1.01, 1.01, 1.03, 1.03, 1.02, 1.04, 1.05],
}
"""Bottleneck of one set of cuts relative to two sets, compute only, on 2 to 8 equal devices."""


def sums(values: npt.ArrayLike) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


@st.composite
def stages(draw: st.DrawFn, values: st.SearchStrategy[float]) -> tuple[list[Floats], list[Floats]]:
    """Running sums for up to 4 stages, each on its own device."""
    num_units, num_stages = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    lists = st.lists(values, min_size=num_units, max_size=num_units).map(sums)
    drawn = st.lists(lists, min_size=num_stages, max_size=num_stages)
    return draw(drawn), draw(drawn)


def all_cuts(num_units: int, num_stages: int) -> list[list[int]]:
    inner = combinations_with_replacement(range(num_units + 1), num_stages - 1)
    return [[0, *cuts, num_units] for cuts in inner]


def best(forward: list[Floats], backward: list[Floats]) -> float:
    cuts = all_cuts(len(forward[0]) - 1, len(forward))
    return min(bottleneck(forward, backward, TwoSets(p, q)) for p in cuts for q in cuts)


def checked(forward: list[Floats], backward: list[Floats]) -> float:
    both = two_sets_of_cuts(forward, backward)
    for cuts in both:
        assert (cuts[0], cuts[-1], len(cuts)) == (0, len(forward[0]) - 1, len(forward) + 1)
        assert all(a <= b for a, b in pairwise(cuts))
    return bottleneck(forward, backward, both)


def reach_gain(forward: list[Floats], backward: list[Floats]) -> None:
    """Several stages for which two sets of cuts are better than one."""
    cuts = all_cuts(len(forward[0]) - 1, len(forward))
    one = min(bottleneck(forward, backward, TwoSets(p, p)) for p in cuts)
    reach("two_sets", checked(forward, backward) < one * (1 - 1e-9))
    reach("several_stages", len(forward) > 1)


@reaches(two_sets=0.1, several_stages=0.1)
@examples(150)
@given(stages(st.integers(0, 12).map(float)))
def test_no_two_sets_are_better_with_whole_numbers(problem: tuple[list[Floats], list[Floats]]) -> None:
    assert checked(*problem) == best(*problem)
    reach_gain(*problem)


@reaches(two_sets=0.1, several_stages=0.1)
@examples(150)
@given(stages(st.floats(0.0, 1e3)))
def test_no_two_sets_are_better_with_any_numbers(problem: tuple[list[Floats], list[Floats]]) -> None:
    assert checked(*problem) <= best(*problem) * (1 + 1e-11) + 1e-9
    reach_gain(*problem)


@reaches(blocked=0.1, reached=0.1)
@examples(200)
@given(stages(st.integers(0, 12).map(float)), st.integers(0, 40).map(float))
def test_furthest_cuts_are_those_of_the_plain_twin(problem: tuple[list[Floats], list[Floats]], limit: float) -> None:
    reached = furthest_cuts(np.asarray(problem[0]), np.asarray(problem[1]), limit).tolist()
    assert reached == plain_furthest_cuts(*problem, limit)
    reach("blocked", reached[-1][-1] < len(reached[0]) - 1)
    reach("reached", reached[-1][-1] == len(reached[0]) - 1)


def test_two_sets_by_hand() -> None:
    # F = B = 1 for three layers on two devices: one set of cuts gives 4 and 2, two sets give 3 and 3.
    ones = [sums([1.0, 1.0, 1.0])] * 2
    assert two_sets_of_cuts(ones, ones) == TwoSets([0, 1, 3], [0, 2, 3])
    # The second device is three times as slow: it gets two of eight seconds.
    slow = sums([3.0] * 4)
    cuts = two_sets_of_cuts([sums([1.0] * 4), slow], [sums([1.0] * 4), slow])
    assert bottleneck([sums([1.0] * 4), slow], [sums([1.0] * 4), slow], cuts) == 6.0


def test_equal_layers_need_one_set_of_cuts() -> None:
    # Four equal layers on two devices are balanced with one set of cuts.
    ones = [sums([1.0] * 4)] * 2
    assert two_sets_of_cuts(ones, ones) == TwoSets([0, 2, 4], [0, 2, 4])


@pytest.mark.parametrize("name", GAINS)
def test_published_gains(name: str) -> None:
    folder = Path(os.environ.get("PENSTOCK_INSTANCES") or REPOSITORY.parent / "shared" / "instances")
    if not folder.is_dir():
        pytest.skip(f"no published profiles in {folder}; PENSTOCK_INSTANCES names the folder")
    spec = importlib.util.spec_from_file_location("instances", REPOSITORY / "benchmarks" / "instances.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    profile = module.all_profiles(folder)[name]
    costs = fit(profile, profile.kinds[0]).at(profile.micro_batch_size)
    ahead, back = sums(costs.forward_s), sums(costs.input_grad_s + costs.weight_grad_s)
    for workers, expected in enumerate(GAINS[name], start=2):
        forward, backward = [ahead] * workers, [back] * workers
        cuts = balanced_cuts([ahead + back] * workers)
        one = bottleneck(forward, backward, TwoSets(cuts, cuts))
        assert one / checked(forward, backward) == pytest.approx(expected, abs=0.01)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    num_units, num_stages = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    seconds = st.lists(st.integers(0, 9).map(float), min_size=num_units, max_size=num_units).map(sums)
    sizes = st.lists(st.integers(0, 9).map(float), min_size=num_units + 1, max_size=num_units + 1)
    rates = st.sampled_from([1.0, 3.0, 100.0, np.inf])
    crossing = np.array([0.0, *draw(sizes)[1:-1], 0.0])
    return Row(
        forward=draw(st.lists(seconds, min_size=num_stages, max_size=num_stages)),
        backward=draw(st.lists(seconds, min_size=num_stages, max_size=num_stages)),
        rates=draw(st.lists(st.tuples(rates, rates), min_size=num_stages - 1, max_size=num_stages - 1)),
        cut_bytes=crossing,
        input_bytes=np.array([5.0, *crossing[1:]]),
        saved_bytes=sums(draw(sizes)[1:]),
        parameter_bytes=sums(draw(sizes)[1:]),
    )


def slowest(row: Row, joints: list[Joint], weight: float) -> float:
    """The bottleneck of some joints, computed plainly."""
    stage_s = np.zeros(len(row.forward))
    for stage, (previous, following) in enumerate(pairwise(joints)):
        stage_s[stage] += row.forward[stage][following.p] - row.forward[stage][previous.p]
        stage_s[stage] += row.backward[stage][following.q] - row.backward[stage][previous.q]
    link_s = [0.0]
    for index, (p, q, recompute) in enumerate(joints[1:-1]):
        first, last = min(p, q), max(p, q)
        back_on = index if q > p else index + 1
        if recompute:
            stage_s[back_on] += row.forward[back_on][last] - row.forward[back_on][first]
        saved = row.saved_bytes[last] - row.saved_bytes[first]
        kept = row.input_bytes[first] if recompute and saved > 0 else saved
        returned = row.parameter_bytes[last] - row.parameter_bytes[first]
        down, up = (returned, kept) if q > p else (kept, returned)
        if np.isinf(weight):
            link_s += [np.inf if p != q else 0.0]
            down = up = 0.0
            weight_here = 0.0
        else:
            weight_here = weight
        link_s.append((row.cut_bytes[p] + weight_here * down) / row.rates[index][0])
        link_s.append((row.cut_bytes[q] + weight_here * up) / row.rates[index][1])
    return float(max(stage_s.max(), *link_s))


def all_joints(row: Row) -> Iterator[list[Joint]]:
    """All joints whose remote backwards are at most one stage away."""
    last = row.end
    single = [Joint(p, q, recompute) for p in range(last + 1) for q in range(last + 1) for recompute in (0, 1)]
    for inner in product(single, repeat=len(row.rates)):
        joints = [Joint(0, 0, 0), *inner, Joint(last, last, 0)]
        if all(max(a.p, a.q) <= min(b.p, b.q) for a, b in pairwise(joints)):
            yield joints


@reaches(several_stages=0.1, remote=0.03, local=0.03)
@examples(60)
@given(rows(), st.sampled_from([np.inf, 0.25, 1.0, 4.0]))
def test_no_priced_cuts_are_better(row: Row, weight: float) -> None:
    cuts = priced_cuts(row, weight)
    assert all(max(a.p, a.q) <= min(b.p, b.q) for a, b in pairwise(cuts))
    least = min(slowest(row, joints, weight) for joints in all_joints(row))
    assert slowest(row, cuts, weight) <= least * (1 + 2e-4) + 1e-9
    reach("several_stages", row.rates)
    reach("remote", any(joint.p != joint.q for joint in cuts))
    reach("local", row.rates and all(joint.p == joint.q for joint in cuts))


def iteration_s(problem: Problem, plan: Plan) -> float:
    return evaluate(plan, problem.profile, problem.cluster, within_memory=False).timeline.iteration_s


def test_never_worse_than_balanced() -> None:
    @reaches(two_sets=0.02, better=0.05, several_devices=0.1)
    @examples(400)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        check_random(data)

    check()


def check_random(data: st.DataObject) -> None:
    """Check the plan of a random problem."""
    profile, cluster = data.draw(profiles()), data.draw(clusters())
    schedule = data.draw(st.sampled_from(list(SCHEDULES)))
    chunks = min(2, profile.num_units)
    shape = data.draw(st.sampled_from(list(Shape))) if profile.num_units > 1 else Shape.STRAIGHT
    chunks = 1 if shape is Shape.STRAIGHT else chunks
    most = min(cluster.num_devices, profile.num_units // chunks)
    problem = Problem(
        profile,
        cluster,
        data.draw(st.integers(1, 4)),
        schedule=schedule,
        pipeline_depth=data.draw(st.none() | st.integers(1, most)),
        num_chunks=chunks,
        shape=shape,
    )
    plan = bipartition(problem)
    assert plan == bipartition(problem)
    assert plan.planner == "bipartition"
    seconds, plain_s = iteration_s(problem, plan), iteration_s(problem, balanced(problem))
    assert seconds <= plain_s
    reach("better", seconds < plain_s * (1 - 1e-9))
    reach("several_devices", len(plan.devices) > 1)
    reach("two_sets", any(stage.has_remote_backward for stage in plan.stages))
    if problem.pipeline_depth is not None:
        allowed = {device.name for device in cluster.devices[: problem.pipeline_depth]}
        assert set(plan.devices) <= allowed


def test_a_gain_by_hand() -> None:
    # Three layers of F = B = 1 on two devices with fast links: 3 seconds per micro-batch on each, instead of 4 and 2.
    profile = profile_of([(1.0, 0.5, 0.5)] * 3)
    problem = Problem(profile, cluster_of([1.0, 1.0]), 16)
    plan = bipartition(problem)
    assert [(one.start, one.stop) for one in plan.stages if one.has_remote_backward] == [(1, 2)]
    # 16 micro-batches of 3 seconds and about one forward and backward through both, against 16 of 4 seconds.
    assert iteration_s(problem, plan) < 56
    assert iteration_s(problem, balanced(problem)) > 64


@reaches(own=0.1, interface=0.02, one_host=0.1)
@given(clusters(), st.data())
def test_rates_are_limited_by_interfaces_between_hosts_only(cluster: Cluster, data: st.DataObject) -> None:
    source, target = (data.draw(sizes_up_to(cluster.num_devices)) - 1 for _ in range(2))
    ends = [cluster.devices[index] for index in (source, target)]
    own = float(cluster.bandwidth[source, target])
    interfaces = [
        host.interface_bandwidth
        for host in cluster.hosts
        if host.name in {device.host for device in ends} and host.interface_bandwidth is not None
    ]
    is_one_host = ends[0].host == ends[1].host
    expected = own if is_one_host else min([own, *interfaces])
    assert rate_between(cluster, source, target) == expected
    reach("one_host" if is_one_host else "own" if expected == own else "interface")


def test_slow_links_keep_the_cuts_together() -> None:
    # The same, but the transfer of saved tensors takes 10 seconds, and that of the input for recomputation too.
    profile = equal_profile(3, input_grad_s=0.5, weight_grad_s=0.5, cut_bytes=10, saved_bytes=10)
    problem = Problem(profile, one_host(2), 8)
    assert not any(stage.has_remote_backward for stage in bipartition(problem).stages)


def test_more_devices_than_units() -> None:
    # One layer, two devices: one runs the forward of the next micro-batch while the other runs the backward.
    problem = Problem(profile_of([(1.0, 0.5, 0.5)]), cluster_of([1.0, 1.0]), 10)
    assert bipartition(problem).stages[0].has_remote_backward


def test_more_units_than_cuts_are_considered() -> None:
    profile = equal_profile(2 * MAX_CUTS + 7)
    problem = Problem(profile, one_host(3), 4)
    assert iteration_s(problem, bipartition(problem)) <= iteration_s(problem, balanced(problem))
