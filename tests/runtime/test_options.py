"""The options of a pipeline."""

import dataclasses

import pytest
import torch

import penstock
from penstock.errors import InputError
from penstock.runtime.options import PipelineOptions
from tests.support.runtime.assembly import PLAN
from tests.support.runtime.models import KINDS


def test_options_are_frozen() -> None:
    options = PipelineOptions()
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("device", "accepts"), [("cpu", True), (torch.device("cpu"), True), ("auto", False), (None, False)]
)
def test_only_the_cpu_by_name_accepts_a_plan_for_gpus(device: str | torch.device | None, accepts: bool) -> None:
    options = PipelineOptions(device=device)
    assert options.accepts_cpu is accepts
    assert options.select_device() == (None if device is None else torch.device("cpu"))


def test_unknown_precisions_are_refused() -> None:
    with pytest.raises(InputError, match="'bf61' is not a precision") as caught:
        PipelineOptions(precision="bf61").training_precision  # noqa: B018
    assert "Did you mean 'bf16'" in caught.value.hint


@pytest.mark.parametrize(
    ("precision", "scale", "text"),
    [
        ("bf16", 2.0, r"precision \(bf16\) does not scale the loss"),
        (None, 2.0, r"precision \(none\) does not scale the loss"),
        ("fp16", 3.0, r"loss_scale \(3\) must be a power of two"),
        ("fp16-mixed", float("inf"), "must be a power of two"),
        ("fp16-mixed", -2.0, "must be a power of two"),
    ],
)
def test_loss_scales_that_are_refused(precision: str | None, scale: float, text: str) -> None:
    with pytest.raises(InputError, match=text):
        PipelineOptions(precision=precision, loss_scale=scale).training_precision  # noqa: B018


def test_the_options_are_the_keyword_arguments_of_a_pipeline() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
        penstock.Pipeline(KINDS["mlp"].model(), PLAN, KINDS["mlp"].loss, sed=1)
