"""A plan is accepted for its own model in any precision, and refused for another one with as many layers."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import penstock
from penstock.errors import MismatchError
from penstock.model.blocks import find_blocks
from penstock.plan.types import PlannedLayer
from penstock.runtime.layout.planned_model import check_planned_model
from tests.support.runtime.user_models import plan_of


def chain(*widths: int, bias: bool = True) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(a, b, bias=bias) for a, b in pairwise(widths)))


def layers_of(model: nn.Module, prefix: str = "") -> tuple[PlannedLayer, ...]:
    return tuple(
        PlannedLayer(prefix + block.name, sum(item.nbytes for item in block.parameters.values()))
        for block in find_blocks(model)
    )


def check(planned: tuple[PlannedLayer, ...], model: nn.Module) -> None:
    blocks = find_blocks(model)
    check_planned_model(replace(plan_of([0, len(blocks)], [["d0"]]), layers=planned), blocks)


def freeze(model: nn.Sequential) -> nn.Sequential:
    for item in model[0].parameters():
        item.requires_grad_(False)
    return model


def with_norm_in_fp32(model: nn.Sequential) -> nn.Sequential:
    return nn.Sequential(*(item.to(torch.bfloat16) for item in model), nn.LayerNorm(8))


@pytest.mark.parametrize(
    ("planned", "trained"),
    [
        (chain, chain),
        (chain, lambda *w: chain(*w).to(torch.bfloat16)),
        (lambda *w: chain(*w).to(torch.bfloat16), chain),
        (chain, lambda *w: chain(*w).double()),
        (chain, lambda *w: freeze(chain(*w))),
        (chain, lambda *w: chain(*w).to("meta")),
        (lambda *w: with_norm_in_fp32(chain(*w)), lambda *w: with_norm_in_fp32(chain(*w))),
        (lambda *w: nn.Sequential(*chain(*w), nn.LayerNorm(8)), lambda *w: with_norm_in_fp32(chain(*w))),
    ],
)
def test_the_same_model(planned: Callable[..., nn.Module], trained: Callable[..., nn.Module]) -> None:
    widths = (8, 24, 16, 8)
    check(layers_of(planned(*widths)), trained(*widths))
    check(layers_of(planned(*widths), "model."), trained(*widths))


@pytest.mark.parametrize(
    ("planned", "trained", "first"),
    [
        (chain(8, 24, 16, 8), chain(8, 24, 32, 8), "'1'"),
        (chain(8, 24, 16, 8), chain(16, 24, 16, 16), "'0'"),
        # Twice the outputs in every other layer is almost, but not exactly, another precision.
        (chain(64, 64, 64), chain(64, 128, 64), "'1'"),
        # Every layer has a quarter: no precision of training takes one byte.
        (chain(8, 8, 8, bias=False), chain(16, 16, 16, bias=False), "'0'"),
        (nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Sequential(nn.Tanh(), nn.Linear(4, 4)), "'0'"),
    ],
)
def test_another_model(planned: nn.Module, trained: nn.Module, first: str) -> None:
    with pytest.raises(MismatchError, match=f"made for another model .*: layer {first} of this model has"):
        check(layers_of(planned), trained)
    renamed = [PlannedLayer(f"block {item.name}", 3 * item.parameter_bytes + 100) for item in layers_of(planned)]
    with pytest.raises(MismatchError, match="but layer 'block "):
        check(tuple(renamed), trained)


def test_a_computed_profile_of_the_same_model() -> None:
    """GPT-2 in bf16 from its data sheet, and a module in fp32 whose layers have other names and no biases."""
    profile = penstock.load_profile("gpt2", kinds=["T4"])
    planned = tuple(PlannedLayer(unit.name, unit.parameter_bytes) for unit in profile.units)

    def model(width: int) -> nn.Sequential:
        def piece(*sizes: int) -> nn.ParameterList:
            return nn.ParameterList(nn.Parameter(torch.empty(size, width)) for size in sizes)

        layers = [part for _ in range(12) for part in (piece(4 * width), piece(8 * width))]
        return nn.Sequential(piece(50_257), *layers, piece(50_304)).to("meta")

    assert profile.num_units == 26
    check(planned, model(768))
    with pytest.raises(MismatchError, match="made for another model"):
        check(planned, model(1024))


def test_a_profile_without_parameters_says_nothing() -> None:
    check((PlannedLayer("a", 0), PlannedLayer("b", 0)), chain(8, 8, 8))
    with pytest.raises(ValueError, match="layers has 1 entries, but the stages cover 2 layers"):
        check((PlannedLayer("a", 0),), chain(8, 8, 8))


def test_the_profile_serves_a_plan_that_does_not_record_its_layers() -> None:
    profile = penstock.load_profile("gpt2", kinds=["T4"])
    plan = penstock.plan(profile, penstock.load_cluster("2 x T4 @ 10 GB/s"), 4, planner="balanced")
    assert [layer.name for layer in plan.layers] == [unit.name for unit in profile.units]
    blocks = find_blocks(chain(*[8] * 27))
    bare = replace(plan, layers=())
    check_planned_model(bare, blocks)
    for one in (plan, bare):
        with pytest.raises(MismatchError, match="made for another model"):
            check_planned_model(one, blocks, profile)
