"""Validation and compilation, without a process group."""

import dataclasses
import logging

import pytest
import torch
from torch import nn

import penstock
from penstock.errors import InputError, MismatchError
from penstock.runtime.assembly.compilation import compile_program, validate
from penstock.runtime.options import PipelineOptions
from tests.support.runtime.assembly import OPTIONS, PLAN, build
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import plan_of


def test_parts_are_frozen() -> None:
    validated, compiled, _ = build("mlp", PLAN, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        validated.plan = PLAN  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        compiled.layout = compiled.layout  # type: ignore[misc]


def test_validation_refuses_another_number_of_layers() -> None:
    with pytest.raises(MismatchError, match="the plan covers 7 layers, but the model has 2"):
        validate(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), PLAN, OPTIONS)


def test_a_model_on_the_meta_device_is_for_the_device_of_the_options() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    plan = plan_of([0, 1, 2], [["d0"], ["d1"]])
    assert validate(model, plan, OPTIONS).device == torch.device("cpu")
    assert all(item.is_meta for item in model.parameters())


def test_compilation_needs_profile_and_cluster_or_neither() -> None:
    options = PipelineOptions(cluster=penstock.load_cluster("2 x k @ 1 GB/s"))
    with pytest.raises(InputError, match="profile and cluster must be given together"):
        compile_program(validate(KINDS["mlp"].model(), PLAN, options), options)


def test_the_logger_is_silent_by_default_and_records_phases(caplog: pytest.LogCaptureFixture) -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("penstock").handlers)
    with caplog.at_level(logging.DEBUG, logger="penstock"):
        build("mlp", PLAN, 0)
    assert any("actions for 2 ranks" in record.getMessage() for record in caplog.records)
