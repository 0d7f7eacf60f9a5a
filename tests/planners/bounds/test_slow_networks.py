"""Lower bounds on slow networks: by hand, and against exact solutions."""

import random

import pytest

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.planners.bounds.bound import Bound, lower_bound
from penstock.planners.bounds.network import divisions
from penstock.planners.bounds.unit_seconds import unit_times
from penstock.planners.problem import Problem
from penstock.profile.types import Profile, Sizes, Times, Unit
from tests.support.small import equal_profile

CLOSE = 2e-3
"""Bounds that are found by halving stop this near."""


def hosts(*num_devices: int, between: float, interface: float | None = None) -> Cluster:
    """Hosts of equal devices: almost nothing inside takes time."""
    names = [f"h{number}" for number in range(len(num_devices))]
    devices = [
        Device(name=f"{name}.d{place}", host=name, kind="k")
        for name, num in zip(names, num_devices, strict=True)
        for place in range(num)
    ]
    inside = Wire(bandwidth=1e12)
    return Cluster(
        name="hosts",
        hosts=tuple(Host(name=name, inside=inside, interface_bandwidth=interface) for name in names),
        devices=tuple(devices),
        between=Wire(bandwidth=between),
    )


def profile_with(cuts: list[int], *, saved: int = 10_000, parameters: int = 0) -> Profile:
    """Units of F = I = W = 1 second with these cuts behind them."""
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


def test_what_cannot_be_sent_stays_on_one_device() -> None:
    # Two units, 2 micro-batches: 12 seconds on one device. To send one cut takes 200 seconds.
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
    # Three pairs of units, each in one host, 16 micro-batches: two pairs are in one host of two devices, 96 seconds.
    # Divided over all devices it would be 72 and some waits.
    profile = profile_with([10_000, 0, 10_000, 0, 10_000, 0])
    bound = lower_bound(profile, hosts(2, 2, between=100.0), 16, replication=False)
    assert 96 * (1 - CLOSE) <= parts(bound)["together"] <= 105
    assert parts(bound)["fill"] < 80


@pytest.mark.parametrize("moved", [True, False])
def test_parameters_that_cannot_pass_stay_at_home(moved: bool) -> None:
    # Two units of 3 seconds, 4 micro-batches. Split over two hosts, 1000 bytes of parameters pass at 1 byte a second;
    # apart, 4 x 1000 bytes of a cut: so all is on one device, 24 seconds.
    profile = equal_profile(2, cut_bytes=1000, saved_bytes=1000, parameter_bytes=1000)
    bound = lower_bound(profile, hosts(1, 1, between=1.0), 4, moved=moved)
    assert bound.seconds == parts(bound)["network"] == pytest.approx(24.0, rel=CLOSE)
    assert parts(bound)["work"] == pytest.approx(12.0)
    # Where the cut is free, each unit has a home of its own: nothing is known but the work.
    apart = profile_with([0, 0], parameters=1000)
    assert lower_bound(apart, hosts(1, 1, between=1.0), 4, moved=moved).seconds == pytest.approx(12.0, rel=CLOSE)


def test_a_host_in_the_middle_sends_on_both_sides() -> None:
    # Three units on three hosts, 8 micro-batches: each alone 24 seconds. The middle one receives and sends 8 x 10 bytes
    # on both sides, in both directions: 160 bytes in and 160 out, at 4 bytes a second: 40. On two hosts it would be 48.
    profile = profile_with([10, 10, 0], parameters=10_000)
    bound = lower_bound(profile, hosts(1, 1, 1, between=4.0, interface=4.0), 8, moved=False)
    assert bound.seconds == parts(bound)["network"] == pytest.approx(40.0, rel=CLOSE)
    # Links of their own on both sides: 80 bytes at 4 a second, which is less than the work.
    assert lower_bound(profile, hosts(1, 1, 1, between=4.0), 8, moved=False).seconds == pytest.approx(24.0, rel=CLOSE)


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


@pytest.mark.parametrize("moved", [True, False])
def test_never_above_exact(moved: bool) -> None:
    pytest.importorskip("ortools", reason="the exact planner needs OR-tools")
    from penstock.planners.exact.solve import exact

    largest = set()
    for seed in range(6):
        problem = slow(seed)
        bound = lower_bound(problem.profile, problem.cluster, 4, replication=False, moved=moved)
        found = exact(problem, moved=moved)
        assert found.proved
        assert all(part.seconds <= found.makespan_s * (1 + 1e-9) for part in bound.parts)
        largest.add(max(bound.parts, key=lambda part: part.seconds).name)
    assert "together" in largest
