"""The phases of assembly that need no process group, one by one."""

import dataclasses
import logging
from typing import TYPE_CHECKING, cast

import pytest
import torch
import torch.distributed as dist
from torch import nn

import penstock
from penstock.errors import InputError, MismatchError
from penstock.plan.types import Plan
from penstock.runtime.assembly import Compiled, Validated, build_stages, check_num_ranks, compile_program, validate
from penstock.runtime.options import PipelineOptions
from penstock.runtime.stage.stage import TorchStage
from penstock.runtime.tensors.packing import pack
from penstock.runtime.tensors.rows import Rows
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import plan_of

if TYPE_CHECKING:
    from penstock.runtime.transport.protocol import Transport

OPTIONS = PipelineOptions()
NO_TRANSPORT = cast("Transport", object())
"""Stages may hold it, and must not use it before they run with other replicas."""
PLAN = plan_of([0, 3, 7], [["d0"], ["d1"]])


def build(kind: str, plan: Plan, rank: int) -> tuple[Validated, Compiled, dict[int, TorchStage]]:
    validated = validate(KINDS[kind].model(), plan, OPTIONS)
    compiled = compile_program(validated, OPTIONS)
    return validated, compiled, build_stages(validated, compiled, validated.blocks, rank, NO_TRANSPORT, OPTIONS)


def test_stages_run_without_a_process_group() -> None:
    assert not dist.is_initialized()
    model = KINDS["mlp"].model().eval()
    validated = validate(model, PLAN, OPTIONS)
    compiled = compile_program(validated, OPTIONS)
    inputs, _ = KINDS["mlp"].batch(0, 6)
    payload = pack(inputs)[0]
    for rank in range(2):
        runners = build_stages(validated, compiled, validated.blocks, rank, NO_TRANSPORT, OPTIONS)
        assert list(runners) == [rank]
        payload, _ = runners[rank].run(payload, 0, Rows(0, 6), None, keep=True, defer=False)
    assert torch.equal(payload.tensors[0], model(inputs).detach())
    assert not dist.is_initialized()


def test_a_rank_builds_the_stages_of_its_forwards_and_backwards() -> None:
    plan = plan_of([0, 2, 5, 7], [["d0"], ["d0"], ["d1"]], backward=[["d0"], ["d1"], ["d1"]])
    assert list(build("mlp", plan, 0)[2]) == [0, 1]
    assert list(build("mlp", plan, 1)[2]) == [1, 2]
    # A rank that the plan does not use.
    assert build("mlp", plan, 2)[2] == {}


def test_only_replicated_stages_have_replica_sync() -> None:
    _, compiled, runners = build("vgg", plan_of([0, 5, 11], [["d0", "d1"], ["d1"]]), 1)
    assert [runner.replica_sync is not None for runner in runners.values()] == [True, False]
    assert [stage.needs_sync for stage in compiled.layout.stages] == [True, False]


def test_parts_are_frozen() -> None:
    validated, compiled, _ = build("mlp", PLAN, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        validated.plan = PLAN  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        compiled.layout = compiled.layout  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        OPTIONS.seed = 1  # type: ignore[misc]


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


def test_too_few_ranks_are_refused() -> None:
    _, compiled, _ = build("mlp", PLAN, 0)
    check_num_ranks(compiled.layout, 2)
    with pytest.raises(InputError, match="the plan uses 2 devices, but there is only 1 rank"):
        check_num_ranks(compiled.layout, 1)


def test_the_options_are_the_keyword_arguments_of_a_pipeline() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
        penstock.Pipeline(KINDS["mlp"].model(), PLAN, KINDS["mlp"].loss, sed=1)


def test_the_logger_is_silent_by_default_and_records_phases(caplog: pytest.LogCaptureFixture) -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("penstock").handlers)
    with caplog.at_level(logging.DEBUG, logger="penstock"):
        build("mlp", PLAN, 0)
    assert any("actions for 2 ranks" in record.getMessage() for record in caplog.records)
