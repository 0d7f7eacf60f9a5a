"""The options of a pipeline."""

import dataclasses

import pytest
import torch

import penstock
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


def test_the_options_are_the_keyword_arguments_of_a_pipeline() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
        penstock.Pipeline(KINDS["mlp"].model(), PLAN, KINDS["mlp"].loss, sed=1)
