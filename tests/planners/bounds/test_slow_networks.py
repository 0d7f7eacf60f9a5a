"""Lower bounds on slow networks: by hand, and against exact solutions."""

import random
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.plan.types import Plan, Replica, on
from penstock.planners.auto.search import auto
from penstock.planners.bounds.bound import Bound, lower_bound
from penstock.planners.bounds.network import divisions
from penstock.planners.bounds.unit_seconds import unit_times
from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.data_parallel import data_parallel
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS
from penstock.planners.search_space import SearchSpace
from penstock.profile.collectives import MeasuredAllReduce
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.simulate.evaluation import evaluate
from tests.support.small import equal_profile

CLOSE = 2e-3
"""Relative precision of bounds that bisection finds."""


def hosts(*num_devices: int, between: float, interface: float | None = None) -> Cluster:
    """Hosts of equal devices, with links inside that take almost no time."""
    names = [f"h{number}" for number in range(len(num_devices))]
    devices = [
        Device(name=f"{name}.d{number}", host=name, kind="k")
        for name, num in zip(names, num_devices, strict=True)
        for number in range(num)
    ]
    inside = Wire(bandwidth=1e12)
    return Cluster(
        name="hosts",
        hosts=tuple(Host(name=name, inside=inside, interface_bandwidth=interface) for name in names),
        devices=tuple(devices),
        between=Wire(bandwidth=between),
    )


def profile_with(cuts: list[int], *, saved: int = 10_000, parameters: int = 0) -> Profile:
    """Layers of F = I = W = 1 second with these cuts behind them."""
    times = (Times(kind="k", micro_batch_size=1, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0),)
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=parameters,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=cut, saved_bytes=saved),),
            times=times,
        )
        for number, cut in enumerate(cuts)
    )
    return Profile(name="cuts", micro_batch_size=1, units=units)


def parts(bound: Bound) -> dict[str, float]:
    return {part.name: part.seconds for part in bound.parts}


def test_slow_cut_keeps_the_model_on_one_device() -> None:
    # Two layers, 2 micro-batches: 12 seconds on one device. To send one cut takes 200 seconds.
    profile = equal_profile(2, cut_bytes=100, saved_bytes=100)
    bound = lower_bound(profile, hosts(1, 1, between=1.0), 2, replication=False)
    assert bound.seconds == parts(bound)["together"] == pytest.approx(12.0, rel=CLOSE)
    assert parts(bound)["work"] == pytest.approx(6.0)


def test_within_a_host_its_own_bounds_hold() -> None:
    # As on one host of two devices: 48 seconds of work and a wait of 1 (test_fill_by_hand); the other host is too far.
    profile = equal_profile(2, cut_bytes=1000, saved_bytes=1000)
    bound = lower_bound(profile, hosts(2, 2, between=1.0), 8, replication=False)
    assert parts(bound)["together"] == pytest.approx(24.5, rel=CLOSE)
    assert parts(bound)["fill"] < 16


def test_runs_that_stay_together_must_fit_into_hosts() -> None:
    # Three pairs of layers, each in one host, 16 micro-batches: two pairs are in one host of two devices, 96 seconds.
    # Divided over all devices it would be 72 and some waits.
    profile = profile_with([10_000, 0, 10_000, 0, 10_000, 0])
    bound = lower_bound(profile, hosts(2, 2, between=100.0), 16, replication=False)
    assert 96 * (1 - CLOSE) <= parts(bound)["together"] <= 105
    assert parts(bound)["fill"] < 80


@pytest.mark.parametrize("remote_backward", [True, False])
def test_large_parameters_stay_local(remote_backward: bool) -> None:
    # Two layers of 3 seconds, 4 micro-batches. Split over two hosts, 1000 bytes of parameters pass at 1 byte a second;
    # apart, 4 x 1000 bytes of a cut: so all is on one device, 24 seconds.
    profile = equal_profile(2, cut_bytes=1000, saved_bytes=1000, parameter_bytes=1000)
    bound = lower_bound(profile, hosts(1, 1, between=1.0), 4, remote_backward=remote_backward)
    assert bound.seconds == parts(bound)["network"] == pytest.approx(24.0, rel=CLOSE)
    assert parts(bound)["work"] == pytest.approx(12.0)
    # If the cut is free, each layer is local to its own host, and only the work bound remains.
    apart = profile_with([0, 0], parameters=1000)
    assert lower_bound(apart, hosts(1, 1, between=1.0), 4, remote_backward=remote_backward).seconds == pytest.approx(
        12.0, rel=CLOSE
    )


def test_measured_all_reduces_faster_than_the_links() -> None:
    # Two replicas on one host: 12 seconds of work each, and 2000 bytes in 3 seconds. Links of 1 byte a second would
    # keep all on one device, 24 seconds.
    profile = equal_profile(2, cut_bytes=1000, saved_bytes=1000, parameter_bytes=1000)
    table = MeasuredAllReduce(num_devices=2, num_bytes=(1000.0, 2000.0), seconds=(2.0, 3.0))
    host = Host(name="h", inside=Wire(bandwidth=1.0, latency_s=1.0))
    devices = tuple(Device(name=f"d{number}", host="h", kind="k") for number in range(2))
    cluster = Cluster(name="one", hosts=(host,), devices=devices, between=Wire(bandwidth=1.0))
    for tables, expected_s in (((), 24.0), ((table,), 15.0)):
        measured = msgspec.structs.replace(cluster, all_reduces=tables)
        bound = lower_bound(profile, measured, 4)
        problem = Problem(profile, measured, 4, pipeline_depth=None if tables else 1)
        plan = data_parallel(problem) if tables else balanced(problem)
        iteration_s = evaluate(plan, profile, measured).timeline.iteration_s
        assert iteration_s == pytest.approx(expected_s)
        assert 12.0 * (1 - CLOSE) <= bound.seconds <= iteration_s
        assert tables or bound.seconds == pytest.approx(24.0, rel=CLOSE)


def test_a_host_in_the_middle_sends_on_both_sides() -> None:
    # Three layers on three hosts, 8 micro-batches: 24 seconds each. The middle one receives and sends 8 x 10 bytes
    # on both sides, in both directions: 160 bytes in and 160 out, at 4 bytes per second: 40. On two hosts: 48.
    profile = profile_with([10, 10, 0], parameters=10_000)
    bound = lower_bound(profile, hosts(1, 1, 1, between=4.0, interface=4.0), 8, remote_backward=False)
    assert bound.seconds == parts(bound)["network"] == pytest.approx(40.0, rel=CLOSE)
    # Links of their own on both sides: 80 bytes at 4 a second, which is less than the work.
    assert lower_bound(profile, hosts(1, 1, 1, between=4.0), 8, remote_backward=False).seconds == pytest.approx(
        24.0, rel=CLOSE
    )


def test_devices_are_divided_by_host_and_by_speed() -> None:
    cluster = hosts(2, 1, between=1.0)
    times = unit_times(Problem(equal_profile(1), cluster, 1))
    assert [part.tolist() for part in divisions(times)] == [[0, 0, 1], [0, 1, 2]]


def slow(seed: int) -> Problem:
    """Three devices on two hosts with little between them."""
    draw = random.Random(seed)
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=draw.randint(0, 100),
            sizes=(Sizes(micro_batch_size=1, cut_bytes=draw.choice([1, 30, 60]), saved_bytes=draw.randint(5, 90)),),
            times=(
                Times(
                    kind="k", micro_batch_size=1, forward_s=draw.uniform(0.5, 2), input_grad_s=1.0, weight_grad_s=0.5
                ),
            ),
        )
        for number in range(3)
    )
    profile = Profile(name="slow", micro_batch_size=1, units=units, input_bytes=20)
    return Problem(profile, hosts(2, 1, between=draw.choice([2.0, 20.0]), interface=20.0), 4)


def test_spread_layer_between_local_ones() -> None:
    # Three layers on two hosts of one device, 8 micro-batches. The outer ones do nothing, but their parameters are too
    # large to pass: they stay on one host, or each row would cross between them (8 x 6 seconds). The inner one has
    # F = 1 and I + W = 3 seconds and no parameters. Its rows on the other host cross the cuts of 6 bytes in front of it
    # and behind it, one byte per second in each direction.
    outer, inner = profile_with([6, 6, 6], parameters=10_000), profile_with([6], saved=0)
    idle = Times(kind="k", micro_batch_size=1, forward_s=0.0, input_grad_s=0.0, weight_grad_s=0.0)
    busy = Times(kind="k", micro_batch_size=1, forward_s=1.0, input_grad_s=1.0, weight_grad_s=2.0)
    ends = [msgspec.structs.replace(unit, times=(idle,)) for unit in outer.units]
    middle = msgspec.structs.replace(inner.units[0], name="u1", times=(busy,))
    profile = msgspec.structs.replace(outer, units=(ends[0], middle, ends[2]))
    cluster = hosts(1, 1, between=1.0)
    # With forward and backward on one device, the share x of the rows is outside: T = 8 x 4 (1 - x) = 8 x 6 x 2 x.
    local = lower_bound(profile, cluster, 8, remote_backward=False)
    assert local.seconds == parts(local)["network"] == pytest.approx(24.0, rel=CLOSE)
    # With remote backwards, the share x of the backwards only: T = 8 (1 + 3 (1 - x)) = 8 x 6 x.
    remote = lower_bound(profile, cluster, 8)
    assert remote.seconds == parts(remote)["network"] == pytest.approx(64 / 3, rel=CLOSE)
    # A quarter of the rows on the other device: the bound is met up to the first and the last transfers.
    first, second = (device.name for device in cluster.devices)
    groups = (on(first), (Replica(first, 0.75), Replica(second, 0.25)), on(first))
    plan = Problem(profile, cluster, 8, schedule="auto").plan("test", [0, 1, 2, 3], groups)
    iteration = evaluate(plan, profile, cluster).timeline.iteration_s
    assert local.seconds <= iteration <= 1.25 * local.seconds


def slow_network(seed: int) -> Problem:
    """Up to four layers on two or three hosts with slow links between them."""
    draw = random.Random(seed)
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=draw.choice([0, 10, 100, 1000]),
            sizes=(
                Sizes(
                    micro_batch_size=1, cut_bytes=draw.choice([1, 5, 20, 60]), saved_bytes=draw.choice([0, 1, 20, 100])
                ),
            ),
            times=(
                Times(
                    kind="k",
                    micro_batch_size=1,
                    forward_s=draw.choice([0.5, 1.0, 2.0, 4.0]),
                    input_grad_s=draw.choice([0.5, 1.0, 2.0]),
                    weight_grad_s=draw.choice([0.5, 1.0, 2.0]),
                ),
            ),
        )
        for number in range(draw.randint(1, 4))
    )
    profile = Profile(name="slow", micro_batch_size=1, units=units, input_bytes=draw.choice([0, 20]))
    between, interface = draw.choice([2.0, 5.0, 20.0, 50.0]), draw.choice([None, 5.0, 20.0])
    shape = draw.choice([(1, 1), (1, 1, 1), (2, 1), (2, 2)])
    return Problem(profile, hosts(*shape, between=between, interface=interface), draw.choice([1, 2, 4, 8]))


def every_planner(problem: Problem, *, remote_backward: bool) -> Iterator[Plan]:
    """The plans of all planners, as far as their backwards may be remote."""
    for name, planner in PLANNERS.items():
        if name == "auto":
            yield auto(problem, search_space=SearchSpace(two_cuts=remote_backward), work=10)
        else:
            plan = planner.plan(problem)
            if remote_backward or not any(stage.has_remote_backward for stage in plan.stages):
                yield plan


MAX_PLANNED = 10
"""How many of the cases with a binding bound are planned."""


def test_network_bound_against_the_best_of_all_planners() -> None:
    binding: Counter[bool] = Counter()
    num_raised = 0
    for seed in range(60):
        problem = slow_network(seed)
        bounds = {}
        for remote_backward in (True, False):
            bound = lower_bound(
                problem.profile, problem.cluster, problem.num_microbatches, remote_backward=remote_backward
            )
            by_name = parts(bound)
            bounds[remote_backward] = network = by_name.pop("network")
            if network <= max(by_name.values()) * (1 + CLOSE):
                continue
            binding[remote_backward] += 1
            assert bound.seconds == network
            if binding[remote_backward] > MAX_PLANNED:
                continue
            best = min(
                evaluate(plan, problem.profile, problem.cluster).timeline.iteration_s
                for plan in every_planner(problem, remote_backward=remote_backward)
            )
            assert network <= best * (1 + 1e-9)
        # Local backwards restrict the plans, so the bound never falls, and with partly spread layers it rises.
        assert bounds[False] >= bounds[True] * (1 - CLOSE)
        num_raised += bounds[False] > bounds[True] * (1 + CLOSE)
    assert min(binding[True], binding[False]) >= 15, binding
    assert num_raised >= 4


@pytest.mark.parametrize("remote_backward", [True, False])
def test_never_above_exact(remote_backward: bool) -> None:
    pytest.importorskip("ortools", reason="the exact planner needs OR-tools")
    from penstock.planners.exact.solve import exact

    largest = set()
    for seed in range(6):
        problem = slow(seed)
        bound = lower_bound(problem.profile, problem.cluster, 4, replication=False, remote_backward=remote_backward)
        solution = exact(problem, remote_backward=remote_backward)
        assert solution.proved
        assert all(part.seconds <= solution.makespan_s * (1 + 1e-9) for part in bound.parts)
        largest.add(max(bound.parts, key=lambda part: part.seconds).name)
    assert "together" in largest
