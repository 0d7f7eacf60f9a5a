"""What cannot be trained right is refused, before anything runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from penstock.errors import InputError, MismatchError
from penstock.model.blocks import find_blocks
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Origin, Plan
from penstock.runtime.layout.compile import neutral_cluster, neutral_profile, prove_plan
from penstock.runtime.layout.layout import check_units, make_layout
from tests.support.runtime.careless_models import (
    clamped_after_the_step,
    different_buffers,
    one_norm_twice,
    one_table_for_all,
    replaced_buffers,
    runs_again_with_another_buffer,
    too_early_and_unknown,
)
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import (
    different_models,
    different_plans,
    make,
    only_make,
    plan_of,
    train_after_all,
)
from tests.support.runtime.world import World
from tests.support.small import equal_profile, one_host

torch.set_num_threads(1)


def refused(world: World, num_ranks: int, function: object, *given: object) -> str:
    world.start(num_ranks, function, *given)  # type: ignore[arg-type]
    outcomes = world.outcomes(num_ranks)
    assert not any(well for well, _ in outcomes)
    assert len({(found[0], found[1]) for _, found in outcomes}) == 1
    name, text, _ = outcomes[0][1]
    return f"{name}: {text}"


def test_batch_norm_over_rows_on_several_devices_that_was_not_expected(world: World) -> None:
    told = refused(world, 2, train_after_all, plan_of([0, 4], [["d0", "d1"]]))
    assert told.startswith("InputError: a block normalises over all rows of a micro-batch (batch norm in training)")


def test_too_few_ranks(world: World) -> None:
    told = refused(world, 2, only_make, "mlp", plan_of([0, 2, 4, 7], [["d0"], ["d1"], ["d2"]]))
    assert told.startswith("InputError: the plan uses 3 devices, but there are only 2 ranks\n  Start 3 ranks")


def test_models_that_differ_between_ranks(world: World) -> None:
    told = refused(world, 2, different_models, plan_of([0, 3, 7], [["d0"], ["d1"]]))
    assert told.startswith(
        "MismatchError: rank 1 was not given the same as rank 0: they differ in 0.weight\n  Give every"
    )


def test_buffers_that_differ_between_ranks(world: World) -> None:
    told = refused(world, 2, different_buffers, plan_of([0, 2], [["d0", "d1"]]))
    assert told.startswith("MismatchError: rank 1 was not given the same as rank 0: they differ in 1.drawn\n")


@pytest.fixture
def spoilt() -> Iterator[World]:
    """For ranks that fail in a step: their connections are of no use afterwards."""
    made = World(2)
    yield made
    made.close()


def error_of(rank: int, world: World, function: object, *given: object) -> str:
    """What a rank says that is at fault; the other may miss it, or be ended."""
    world.start(2, function, *given)  # type: ignore[arg-type]
    well, found = world.outcome(rank)
    assert not well
    return f"{found[0]}: {found[1]}"


def test_a_buffer_that_changes_in_two_stages(world: World, spoilt: World) -> None:
    told = error_of(0, spoilt, one_norm_twice, plan_of([0, 2, 4], [["d0"], ["d1"]]))
    assert "InputError: the buffer '1.num_batches_tracked' changes in training, and blocks of several stages" in told
    made = plan_of([0, 1, 2], [["d0"], ["d1"]])
    first, second = world.run(2, one_table_for_all, made)
    assert first == second


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_parameters_that_change_after_the_step(world: World, spoilt: World, schedule: str, tmp_path: Path) -> None:
    moved = plan_of([0, 1, 2], [["d0"], ["d1"]], backward=[["d1"], ["d1"]], schedule=schedule)
    told = error_of(1, spoilt, clamped_after_the_step, moved)
    assert "InputError: parameters have changed after the optimizer's step, or without it" in told
    world.run(2, clamped_after_the_step, moved, str(tmp_path / "kept"))
    world.run(2, clamped_after_the_step, plan_of([0, 1, 2], [["d0"], ["d1"]], schedule=schedule))


@pytest.mark.parametrize("backward", [[["d0"], ["d1"]], [["d1"], ["d1"]]], ids=["here", "elsewhere"])
def test_a_forward_that_would_give_something_else_when_it_runs_again(spoilt: World, backward: list[list[str]]) -> None:
    made = plan_of([0, 2, 3], [["d0"], ["d1"]], backward=backward, recompute=True)
    told = error_of(0, spoilt, runs_again_with_another_buffer, made)
    assert "rank 0 (d0), step 0, 0F0" in told
    assert "but it reads buffers that it changes, and would give something else" in told


def test_buffers_are_those_of_now(world: World) -> None:
    found = world.run(2, replaced_buffers, plan_of([0, 1, 2], [["d0"], ["d1"]]))
    assert found == [{}, {"1.count": 4.0}]


def test_what_is_asked_too_early_or_is_of_no_kind(world: World) -> None:
    for told in world.run(2, too_early_and_unknown, plan_of([0, 1, 2], [["d0"], ["d1"]])):
        assert told[0].startswith("no iteration has been run yet")
        assert told[1].startswith("the inputs and targets have a ndarray in them")


def test_plans_that_differ_between_ranks(world: World) -> None:
    plans = [plan_of([0, 3, 7], [["d0"], ["d1"]]), plan_of([0, 4, 7], [["d0", "d1"], ["d1"]])]
    told = refused(world, 2, different_plans, plans)
    assert told.startswith("MismatchError: rank 1 was not given the same as rank 0: they differ in the plan")


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.Dropout(0.5)])
def test_compiled_blocks_that_must_know_of_all_rows(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), layer))
    model[1].compile(backend="eager")
    blocks = find_blocks(model)
    alone = prove_plan(plan_of([0, 1, 2], [["d0"], ["d1"]]), blocks, None, None)
    make_layout(alone.costs, blocks)
    shared = prove_plan(plan_of([0, 1, 2], [["d0"], ["d1", "d2"]]), blocks, None, None)
    with pytest.raises(InputError, match=f"block '1', whose rows are on several devices, .* {type(layer).__name__} in"):
        make_layout(shared.costs, blocks)


def test_without_a_process_group() -> None:
    with pytest.raises(InputError, match=r"torch\.distributed is not set up"):
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
    moved = plan_of([0, 3, 7], [["d0"], ["d1"]], backward=[["d1"], ["d1"]])
    with pytest.raises(MismatchError, match="block '0' has parameters, but"):
        with_profile("mlp", moved, 0)
    with_profile("mlp", moved, 100)


def test_a_plan_for_another_number_of_units() -> None:
    blocks = find_blocks(KINDS["mlp"].model())
    with pytest.raises(MismatchError, match="covers 5 units, but the model has 7 blocks"):
        check_units(plan_of([0, 2, 5], [["d0"], ["d1"]]), blocks)


def test_stand_ins_for_a_plan_that_comes_alone() -> None:
    blocks = find_blocks(KINDS["gpt"].model())
    profile = neutral_profile(blocks, 4)
    assert [tie.units for tie in profile.ties] == [(0, 4)]
    assert profile.ties[0].parameter_bytes == 17 * 16 * 4
    plan = plan_of([0, 1, 2, 5], [["gpu10"], ["gpu2"], ["cpu"]])
    assert [device.name for device in neutral_cluster(plan).devices] == ["cpu", "gpu2", "gpu10"]
    assert plan.profile == Origin(name="none", digest="none")
