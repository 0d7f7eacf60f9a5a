"""Prices of single losses: equal devices once, state that nobody else holds, and the expected time of a step."""

import msgspec
import pytest

from penstock.adaptation import FailureModel, expected_step_s, find_moves, move_seconds, price_losses
from penstock.cluster import load_cluster
from penstock.planners.api import solve
from penstock.simulate import evaluate
from tests.adaptation.test_decisions import subject


def test_equal_losses_are_priced_once_and_the_rest_by_what_they_cost() -> None:
    profile, cluster, _ = subject()
    plan = solve(profile, cluster, 8, planner="balanced", schedule="1f1b").plan  # one device for each stage
    evaluation = evaluate(plan, profile, cluster)
    planned: list[str] = []
    prices = price_losses(evaluation, profile, copy_every=5, on_loss=planned.append)
    assert [(item.loss.name, item.alike) for item in prices] == [
        ("h0.d0", ("h0.d0", "h0.d1", "h1.d0", "h1.d1")),
        ("h0", ("h0", "h1")),
    ]
    assert planned == ["h0.d0", "h0"]
    device, host = prices
    assert device.iteration_s is not None
    assert host.iteration_s is not None
    assert evaluation.timeline.iteration_s < device.iteration_s < host.iteration_s
    # No other device holds the stage of a lost one.
    assert device.needs_copy
    assert (device.steps_lost, host.steps_lost) == (5, 5)
    assert device.recover_s > 10.0
    failures = FailureModel(per_day=0.1, repair_s=7200.0)
    healthy_s = evaluation.timeline.iteration_s
    rate = 0.1 / 86400
    extra = sum(
        rate * len(item.alike) * (item.recover_s + 5 * healthy_s + (1 - healthy_s / (item.iteration_s or 0.0)) * 7200.0)
        for item in prices
    )
    assert expected_step_s(healthy_s, prices, failures) == pytest.approx(healthy_s * (1 + extra))
    # Plans that were made for the same losses are not made again.
    planned.clear()
    again = price_losses(evaluation, profile, known=prices, on_loss=planned.append)
    assert [item.iteration_s for item in again] == [item.iteration_s for item in prices]


def test_replicas_hold_the_state_and_unused_devices_cost_nothing() -> None:
    profile, cluster, _ = subject()
    plan = solve(profile, cluster, 8, planner="data_parallel").plan
    prices = price_losses(evaluate(plan, profile, cluster), profile, copy_every=5)
    assert [(item.needs_copy, item.steps_lost) for item in prices] == [(False, 1), (False, 1)]
    small = solve(profile, cluster, 8, planner="balanced", pipeline_depth=2).plan
    idle = [item for item in price_losses(evaluate(small, profile, cluster), profile) if item.recover_s == 0.0]
    assert {name for item in idle for name in item.alike} == {"h1.d0", "h1.d1", "h1"}


def test_a_plan_for_which_the_rest_lacks_memory_has_no_price() -> None:
    profile, _, _ = subject()
    tight = load_cluster("2 x X @ 2 GB/s")
    plan = solve(profile, tight, 8, planner="balanced").plan
    needed = max(evaluate(plan, profile, tight).proof.peak_bytes.tolist())
    devices = tuple(msgspec.structs.replace(device, memory_bytes=int(needed) + 1) for device in tight.devices)
    tight = msgspec.structs.replace(tight, devices=devices)
    plan = solve(profile, tight, 8, planner="balanced").plan
    (price,) = price_losses(evaluate(plan, profile, tight), profile)
    assert price.evaluation is None
    assert "needs 192 MB" in price.problem
    assert expected_step_s(1.0, [price], FailureModel(1.0, 86400.0)) == pytest.approx(3.0)


def test_only_what_a_device_lacks_moves() -> None:
    profile, cluster, _ = subject()
    one = solve(profile, cluster, 8, planner="balanced", pipeline_depth=2).plan
    assert find_moves(one, one, profile, cluster) == ()
    other = solve(profile, cluster, 8, planner="balanced", pipeline_depth=4).plan
    moves = find_moves(one, other, profile, cluster)
    before = {layer: stage.forward[0].device for stage in one.stages for layer in range(stage.start, stage.stop)}
    after = {layer: stage.forward[0].device for stage in other.stages for layer in range(stage.start, stage.stop)}
    assert {move.layer for move in moves} == {layer for layer in before if before[layer] != after[layer]}
    for move in moves:
        assert (move.source, move.target) == (before[move.layer], after[move.layer])
        # Parameters, and two floats of Adam for each of them.
        moved = sum(other.num_bytes for other in moves if other.layer == move.layer)
        assert moved == 3 * profile.units[move.layer].parameter_bytes
    assert move_seconds(moves, cluster) > 0
