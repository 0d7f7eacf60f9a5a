"""Lower bounds: by hand, and never above the iteration time of any plan."""

from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster
from penstock.errors import InputError
from penstock.planners.bounds.bound import Bound, lower_bound
from penstock.planners.bounds.chain import least_spread
from penstock.planners.bounds.unit_seconds import Lines, unit_times
from penstock.planners.bounds.work import Prices
from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.data_parallel import data_parallel
from penstock.planners.problem import Problem
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.simulate.evaluation import evaluate
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import Case, cases, clusters, pipelines, profiles, reach_features
from tests.support.thoroughness import examples

TOLERANCE = 1 + 1e-9


def parts(bound: Bound) -> dict[str, float]:
    return {part.name: part.seconds for part in bound.parts}


def iteration_s(case: Case) -> float:
    return evaluate(case.plan, case.profile, case.cluster, within_memory=False).timeline.iteration_s


def only_one_device(case: Case) -> Case:
    """The same plan with the first replica of every group."""
    stages = tuple(
        msgspec.structs.replace(
            stage,
            forward=(msgspec.structs.replace(stage.forward[0], share=1.0),),
            backward=(msgspec.structs.replace(stage.backward[0], share=1.0),),
            sharded_optimizer=False,
        )
        for stage in case.plan.stages
    )
    return Case(case.profile, case.cluster, msgspec.structs.replace(case.plan, stages=stages))


def local_backward(case: Case) -> Case:
    """The same plan with every backward on the device of its forward."""
    stages = tuple(msgspec.structs.replace(stage, backward=stage.forward) for stage in case.plan.stages)
    return Case(case.profile, case.cluster, msgspec.structs.replace(case.plan, stages=stages))


def test_no_plan_is_faster() -> None:
    def check_one(case: Case, replication: bool, remote_backward: bool) -> None:
        case = case if replication else only_one_device(case)
        case = case if remote_backward else local_backward(case)
        plan = case.plan
        bound = lower_bound(
            case.profile,
            case.cluster,
            plan.num_microbatches,
            plan.micro_batch_size,
            replication=replication,
            remote_backward=remote_backward,
        )
        iteration = iteration_s(case)
        for part in bound.parts:
            assert part.seconds <= iteration * TOLERANCE + 1e-12, part
        is_sharded = any(stage.sharded_optimizer for stage in plan.stages)
        if replication and not is_sharded:
            full = lower_bound(
                case.profile,
                case.cluster,
                plan.num_microbatches,
                plan.micro_batch_size,
                remote_backward=remote_backward,
                sharded_optimizer=False,
            )
            assert bound.seconds * (1 - 1e-3) <= full.seconds <= iteration * TOLERANCE + 1e-12
        reach("sharded", is_sharded)
        assert bound.seconds == max(part.seconds for part in bound.parts)
        reach_features(case)
        reach(max(bound.parts, key=lambda part: part.seconds).name)
        reach("close", bound.seconds > 0.7 * iteration > 0)

    # `network` is seldom the largest here: see test_slow_networks.py.
    @reaches(replicated=0.1, sharded=0.03, remote=0.1, work=0.05, chain=0.05, together=0.05, close=0.01)
    @examples(160)
    @given(cases() | pipelines(8))
    def check(case: Case) -> None:
        for replication, remote_backward in product((True, False), repeat=2):
            check_one(case, replication, remote_backward)

    check()


def test_smaller_search_space_never_lowers_the_bound() -> None:
    @reaches(raised=0.2)
    @examples(40)
    @given(profiles(overheads=True), clusters(), st.integers(1, 6))
    def check(profile: Profile, cluster: Cluster, num: int) -> None:
        full = parts(lower_bound(profile, cluster, num))
        for replication, remote_backward in product((True, False), repeat=2):
            bound = lower_bound(profile, cluster, num, replication=replication, remote_backward=remote_backward)
            restricted = parts(bound)
            assert all(restricted[name] >= full[name] * (1 - 1e-3) for name in full)
            reach("raised", bound.seconds > max(full.values()) * (1 + 1e-3))

    check()


def test_one_device_is_met_exactly() -> None:
    # One device does everything one after the other: 3 micro-batches of (1 + 2 + 3) and of (2 + 1 + 1) seconds.
    profile, cluster = profile_of([(1.0, 2.0, 3.0), (2.0, 1.0, 1.0)]), cluster_of([1.0])
    problem = Problem(profile, cluster, 3)
    case = Case(profile, cluster, balanced(problem))
    assert lower_bound(profile, cluster, 3).seconds == pytest.approx(30.0, rel=1e-12)
    assert iteration_s(case) == pytest.approx(30.0)


def test_data_parallel_meets_the_work_bound() -> None:
    # Two devices, one twice as fast, free reductions: 4 micro-batches of 12 seconds at speed 3 take 16 seconds.
    profile, cluster = equal_profile(4), cluster_of([2.0, 1.0])
    cluster = msgspec.structs.replace(
        cluster, devices=tuple(msgspec.structs.replace(device, kind="k") for device in cluster.devices)
    )
    bound = lower_bound(profile, cluster, 4)
    assert bound.seconds == parts(bound)["work"] == pytest.approx(16.0)
    assert iteration_s(Case(profile, cluster, data_parallel(Problem(profile, cluster, 4)))) == pytest.approx(16.0)


def test_the_forward_on_one_kind_and_the_step_on_another() -> None:
    # Nothing takes time on x but the step, 1 second; on y the forward and the step take 0.25 seconds each. The forward
    # on x and the rest on y take 0.25 seconds.
    times = tuple(
        Times(kind=kind, micro_batch_size=1, forward_s=forward_s, input_grad_s=0.0, weight_grad_s=0.0, step_s=step_s)
        for kind, forward_s, step_s in (("x", 0.0, 1.0), ("y", 0.25, 0.25))
    )
    unit = Unit(
        name="a", parameter_bytes=0, sizes=(Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=0),), times=times
    )
    cluster = cluster_of([1.0, 1.0])
    devices = tuple(msgspec.structs.replace(d, kind=kind) for d, kind in zip(cluster.devices, "xy", strict=True))
    profile = Profile(name="steps", micro_batch_size=1, units=(unit,))
    cluster = msgspec.structs.replace(cluster, devices=devices)
    assert lower_bound(profile, cluster, 1, replication=False).seconds <= 0.25 * TOLERANCE


def test_chain_by_hand() -> None:
    # One layer of F = 4, I = W = 1 on two equal devices, in one micro-batch, one after the other: 4, 1, 1. Split over
    # both it takes half of that.
    profile, cluster = profile_of([(4.0, 1.0, 1.0)]), cluster_of([1.0, 1.0])
    assert parts(lower_bound(profile, cluster, 1, replication=False))["chain"] == pytest.approx(6.0)
    assert parts(lower_bound(profile, cluster, 1))["chain"] == pytest.approx(3.0)
    # With 10 micro-batches: all through F on one device, then 1 + 1; on one device for both directions, all 60.
    assert parts(lower_bound(profile, cluster, 10, replication=False))["chain"] == pytest.approx(42.0)
    assert parts(lower_bound(profile, cluster, 10, replication=False, remote_backward=False))["chain"] == pytest.approx(
        60.0
    )


def test_fill_by_hand() -> None:
    # Two layers of F = I = W = 1 on two devices, M = 8, nothing to send: 48 seconds of work on two devices, and one
    # waits for one forward: 2 T >= 48 + 1. Zero-bubble schedules need 25; the bound is 24.5.
    profile, cluster = equal_profile(2), one_host(2)
    assert parts(lower_bound(profile, cluster, 8, replication=False))["fill"] == pytest.approx(24.5)
    assert parts(lower_bound(profile, cluster, 8))["work"] == pytest.approx(24.0)
    # One micro-batch: F F I I W, the chain bound.
    assert lower_bound(profile, cluster, 1, replication=False).seconds == pytest.approx(5.0)


def test_packing_by_hand() -> None:
    # Three layers of 3 seconds on two devices: two on one of them, if forward and backward stay together; else six jobs
    # of 1 and 2 seconds, together 9, and one device waits for a forward: 2 T >= 10.
    profile, cluster = equal_profile(3), one_host(2)
    assert parts(lower_bound(profile, cluster, 1, replication=False, remote_backward=False))[
        "packing"
    ] == pytest.approx(6.0)
    assert parts(lower_bound(profile, cluster, 1, replication=False))["packing"] == pytest.approx(5.0)
    # Five layers on three devices, 8 micro-batches: forwards of 8 seconds and backwards of 16, together 120 on three
    # devices; 40 is 5 times 8, but with forward and backward on one device it has 24, 48, ... seconds of them.
    five = equal_profile(5)
    assert parts(lower_bound(five, one_host(3), 8, replication=False, remote_backward=False))[
        "packing"
    ] == pytest.approx(48.0)
    # Six layers on four devices, with remote backwards: 144 seconds, 36 each, but in pieces of 8: one device has 40.
    six = lower_bound(equal_profile(6), one_host(4), 8, replication=False)
    assert parts(six)["packing"] == pytest.approx(40.0, rel=2e-3)
    assert parts(six)["fill"] < 38


def test_packing_without_any_work() -> None:
    # Each layer is free on one of the kinds: no job sets a scale, and nothing takes time.
    units = tuple(
        Unit(
            name=name,
            parameter_bytes=0,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=0),),
            times=tuple(
                Times(kind=kind, micro_batch_size=1, forward_s=seconds, input_grad_s=seconds, weight_grad_s=seconds)
                for kind, seconds in zip("xy", times, strict=True)
            ),
        )
        for name, times in (("a", (0.0, 1.0)), ("b", (1.0, 0.0)))
    )
    cluster = cluster_of([1.0, 1.0])
    devices = tuple(msgspec.structs.replace(d, kind=kind) for d, kind in zip(cluster.devices, "xy", strict=True))
    profile = Profile(name="free", micro_batch_size=1, units=units)
    bound = lower_bound(profile, msgspec.structs.replace(cluster, devices=devices), 2, replication=False)
    assert parts(bound)["packing"] == 0.0


def test_kinds_that_are_fast_at_different_layers() -> None:
    # Layer a takes 1 second on kind x and 9 on kind y, layer b the other way round, F only: each on its own device, 1.
    units = tuple(
        Unit(
            name=name,
            parameter_bytes=0,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=0),),
            times=tuple(
                Times(kind=kind, micro_batch_size=1, forward_s=seconds, input_grad_s=0.0, weight_grad_s=0.0)
                for kind, seconds in zip("xy", times, strict=True)
            ),
        )
        for name, times in (("a", (1.0, 9.0)), ("b", (9.0, 1.0)))
    )
    cluster = cluster_of([1.0, 1.0])
    devices = tuple(msgspec.structs.replace(d, kind=kind) for d, kind in zip(cluster.devices, "xy", strict=True))
    bound = lower_bound(
        Profile(name="two", micro_batch_size=1, units=units), msgspec.structs.replace(cluster, devices=devices), 5
    )
    assert parts(bound)["work"] == pytest.approx(5.0, rel=1e-6)


@reaches(spread=0.05, alone=0.03, close=0.02)
@examples(100)
@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=4),
    st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4),
)
def test_no_shares_are_below_the_least_spread(lines: list[tuple[float, float]], weights: list[float]) -> None:
    table = np.array(lines)
    least = float(least_spread(Lines(table[:, :1], table[:, 1:]))[0])
    shares = np.array(weights[: len(lines)]) / sum(weights[: len(lines)])
    spread, alone = float((shares * (table[:, 0] + shares * table[:, 1])).sum()), float(table.sum(axis=1).min())
    assert least <= spread + 1e-9
    assert least <= alone + 1e-9
    reach("spread" if least < alone - 1e-9 else "alone", len(lines) > 1 and alone > 0)
    reach("close", len(lines) > 1 and least > 0.9 * spread > 0)


def test_least_spread_by_hand() -> None:
    # Two devices without base, 2 and 4 seconds: shares 2/3 and 1/3, each done after 4/3. With a base of 10 on the
    # second, all rows go to the first.
    assert least_spread(Lines(np.zeros((2, 1)), np.array([[2.0], [4.0]])))[0] == pytest.approx(4 / 3)
    assert least_spread(Lines(np.array([[0.0], [10.0]]), np.array([[2.0], [4.0]])))[0] == pytest.approx(2.0)
    # A device that takes 3 seconds however few rows it gets, and one of 4 in proportion. The chain of an average row:
    # x 3 + (1 - x) (1 - x) 4, least at 1 - x = 3/8: 39/16.
    assert least_spread(Lines(np.array([[3.0], [0.0]]), np.array([[0.0], [4.0]])))[0] == pytest.approx(39 / 16)


@reaches(several_units=0.1, unequal_prices=0.1)
@examples(30)
@given(st.data())
def test_prices_come_close_to_the_best(data: st.DataObject) -> None:
    # Three kinds: against a fine grid of weights.
    seconds = st.floats(0.1, 5.0)
    num_units = data.draw(st.integers(1, 4))
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=0,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=0),),
            times=tuple(
                Times(kind=kind, micro_batch_size=1, forward_s=data.draw(seconds), input_grad_s=0.5, weight_grad_s=0.5)
                for kind in "xyz"
            ),
        )
        for number in range(num_units)
    )
    cluster = cluster_of([1.0, 2.0, 1.0])
    devices = tuple(msgspec.structs.replace(d, kind=kind) for d, kind in zip(cluster.devices, "xyz", strict=True))
    cluster = msgspec.structs.replace(cluster, devices=devices)
    times = unit_times(Problem(Profile(name="three", micro_batch_size=1, units=units), cluster, 1))
    jobs = np.concatenate([times.forward.whole, (times.input_grad + times.weight_grad).whole], axis=1)
    value = Prices(times).best(jobs, np.zeros(3))
    grid = np.linspace(0, 1, 41)
    best = max(
        float((np.array([a, b, 1 - a - b])[:, None] * jobs).min(axis=0).sum()) for a in grid for b in grid if a + b <= 1
    )
    assert value >= best * 0.99
    reach("several_units", num_units > 1)
    reach("unequal_prices", best > 1.01 * float((jobs / 3).min(axis=0).sum()))


def test_invalid_microbatches() -> None:
    with pytest.raises(InputError):
        lower_bound(equal_profile(1), one_host(1), 0)
    with pytest.raises(InputError):
        lower_bound(equal_profile(1), one_host(1), 1, micro_batch_size=0)
