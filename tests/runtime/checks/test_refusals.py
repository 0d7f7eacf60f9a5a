"""Configurations that cannot be trained correctly are refused."""

from pathlib import Path

import pytest
import torch
from torch import nn

from penstock.errors import InputError, MismatchError
from penstock.model.blocks import find_blocks
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Origin, Plan
from penstock.runtime.layout.compile import compile_plan, placeholder_cluster, placeholder_profile
from penstock.runtime.layout.layout import make_layout
from penstock.runtime.layout.planned_model import check_planned_model
from tests.support.runtime.careless_models import (
    clamped_after_the_step,
    different_buffers,
    one_norm_twice,
    one_table_for_all,
    recomputes_with_another_buffer,
    replaced_buffers,
    too_early_and_unknown,
)
from tests.support.runtime.models import KINDS
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import (
    different_models,
    different_plans,
    make,
    only_make,
    plan_of,
    train_after_all,
)
from tests.support.small import equal_profile, one_host

torch.set_num_threads(1)


def refused(rank_pool: RankPool, num_ranks: int, function: object, *args: object) -> str:
    outcomes = rank_pool.outcomes(num_ranks, function, *args)  # type: ignore[arg-type]
    assert not any(ok for ok, _ in outcomes)
    assert len({(outcome[0], outcome[1]) for _, outcome in outcomes}) == 1
    name, text, _ = outcomes[0][1]
    return f"{name}: {text}"


def test_batch_norm_over_rows_on_several_devices_that_was_not_expected(rank_pool: RankPool) -> None:
    message = refused(rank_pool, 2, train_after_all, plan_of([0, 4], [["d0", "d1"]]))
    assert message.startswith(
        "InputError: a layer normalizes over all rows of a micro-batch (batch norm in training mode)"
    )


def test_too_few_ranks(rank_pool: RankPool) -> None:
    message = refused(rank_pool, 2, only_make, "mlp", plan_of([0, 2, 4, 7], [["d0"], ["d1"], ["d2"]]))
    assert message.startswith("InputError: the plan uses 3 devices, but there are only 2 ranks\n  Start 3 ranks")


def test_models_that_differ_between_ranks(rank_pool: RankPool) -> None:
    message = refused(rank_pool, 2, different_models, plan_of([0, 3, 7], [["d0"], ["d1"]]))
    assert message.startswith(
        "MismatchError: rank 0 and rank 1 disagree on 0.weight\n  Use the same plan on every rank"
    )


def test_buffers_that_differ_between_ranks(rank_pool: RankPool) -> None:
    message = refused(rank_pool, 2, different_buffers, plan_of([0, 2], [["d0", "d1"]]))
    assert message.startswith("MismatchError: rank 0 and rank 1 disagree on 1.drawn\n")


def error_of(rank: int, rank_pool: RankPool, function: object, *args: object) -> str:
    """The error of the failing rank. The other rank may finish, or be ended."""
    ok, outcome = rank_pool.outcome_of(rank, 2, function, *args)  # type: ignore[arg-type]
    assert not ok
    return f"{outcome[0]}: {outcome[1]}"


def test_a_buffer_that_changes_in_two_stages(rank_pool: RankPool) -> None:
    message = error_of(0, rank_pool, one_norm_twice, plan_of([0, 2, 4], [["d0"], ["d1"]]))
    assert "InputError: buffer '1.num_batches_tracked' changes in training, but layers of several stages" in message
    plan = plan_of([0, 1, 2], [["d0"], ["d1"]])
    first, second = rank_pool.run(2, one_table_for_all, plan)
    assert first == second


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_parameters_that_change_after_the_step(rank_pool: RankPool, schedule: str, tmp_path: Path) -> None:
    remote = plan_of([0, 1, 2], [["d0"], ["d1"]], backward=[["d1"], ["d1"]], schedule=schedule)
    message = error_of(1, rank_pool, clamped_after_the_step, remote)
    assert "InputError: parameters have changed outside the optimizer step" in message
    rank_pool.run(2, clamped_after_the_step, remote, str(tmp_path / "kept"))
    rank_pool.run(2, clamped_after_the_step, plan_of([0, 1, 2], [["d0"], ["d1"]], schedule=schedule))


@pytest.mark.parametrize("backward", [[["d0"], ["d1"]], [["d1"], ["d1"]]], ids=["local", "remote"])
def test_a_forward_whose_recompute_would_differ(rank_pool: RankPool, backward: list[list[str]]) -> None:
    plan = plan_of([0, 2, 3], [["d0"], ["d1"]], backward=backward, recompute=True)
    message = error_of(0, rank_pool, recomputes_with_another_buffer, plan)
    assert "rank 0 (d0), step 0, 0F0" in message
    assert "but it reads buffers that it changes, so its output would differ" in message


def test_buffers_are_current(rank_pool: RankPool) -> None:
    outcome = rank_pool.run(2, replaced_buffers, plan_of([0, 1, 2], [["d0"], ["d1"]]))
    assert outcome == [{}, {"1.count": 4.0}]


def test_calls_that_are_too_early_or_of_unknown_type(rank_pool: RankPool) -> None:
    for message in rank_pool.run(2, too_early_and_unknown, plan_of([0, 1, 2], [["d0"], ["d1"]])):
        assert message[0].startswith("no iteration has been run yet")
        assert message[1].startswith("inputs or targets contain a ndarray")


def test_plans_that_differ_between_ranks(rank_pool: RankPool) -> None:
    plans = [plan_of([0, 3, 7], [["d0"], ["d1"]]), plan_of([0, 4, 7], [["d0", "d1"], ["d1"]])]
    message = refused(rank_pool, 2, different_plans, plans)
    assert message.startswith("MismatchError: rank 0 and rank 1 disagree on the plan")


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.Dropout(0.5)])
def test_compiled_blocks_that_need_all_rows(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), layer))
    model[1].compile(backend="eager")
    blocks = find_blocks(model)
    single = compile_plan(plan_of([0, 1, 2], [["d0"], ["d1"]]), blocks, None, None)
    make_layout(single.costs, blocks)
    shared = compile_plan(plan_of([0, 1, 2], [["d0"], ["d1", "d2"]]), blocks, None, None)
    with pytest.raises(
        InputError, match=f"layer '1', whose rows are on several devices, .* contains {type(layer).__name__},"
    ):
        make_layout(shared.costs, blocks)


def test_without_a_process_group() -> None:
    with pytest.raises(InputError, match=r"torch\.distributed is not initialized"):
        make("mlp", plan_of([0, 7], [["d0"]]))


def with_profile(kind: str, plan: Plan, parameter_bytes: int) -> None:
    blocks = find_blocks(KINDS[kind].model())
    profile, cluster = equal_profile(len(blocks), parameter_bytes=parameter_bytes), one_host(2)
    make_layout(price(plan, profile, cluster, strict=False), blocks)


def test_a_profile_without_the_models_ties() -> None:
    with pytest.raises(MismatchError, match=r"stages 0, 1 share the parameter '0\.tokens\.weight'"):
        with_profile("gpt", plan_of([0, 2, 5], [["d0"], ["d1"]]), 100)
    with_profile("gpt", plan_of([0, 2, 5], [["d0"], ["d0"]]), 100)


def test_a_profile_without_the_models_parameters() -> None:
    remote = plan_of([0, 3, 7], [["d0"], ["d1"]], backward=[["d1"], ["d1"]])
    with pytest.raises(MismatchError, match="layer '0' has parameters, but"):
        with_profile("mlp", remote, 0)
    with_profile("mlp", remote, 100)


def test_a_plan_for_another_number_of_layers() -> None:
    blocks = find_blocks(KINDS["mlp"].model())
    with pytest.raises(MismatchError, match="covers 5 layers, but the model has 7"):
        check_planned_model(plan_of([0, 2, 5], [["d0"], ["d1"]]), blocks)


def test_placeholders_for_a_plan_without_profile_and_cluster() -> None:
    blocks = find_blocks(KINDS["gpt"].model())
    profile = placeholder_profile(blocks, 4)
    assert [tie.units for tie in profile.ties] == [(0, 4)]
    assert profile.ties[0].parameter_bytes == 17 * 16 * 4
    plan = plan_of([0, 1, 2, 5], [["gpu10"], ["gpu2"], ["cpu"]])
    assert [device.name for device in placeholder_cluster(plan).devices] == ["cpu", "gpu2", "gpu10"]
    assert plan.profile == Origin(name="none", digest="none")
