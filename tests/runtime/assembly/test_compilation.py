"""Validation and compilation, without a process group."""

import dataclasses
import logging
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import penstock
from penstock.errors import InputError, MismatchError
from penstock.program import SEND_KINDS
from penstock.program.slices import save_slices
from penstock.runtime.assembly import compilation
from penstock.runtime.assembly.compilation import Compiled, compile_program, validate
from penstock.runtime.layout import find_links, find_split_backwards
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


def test_a_model_is_moved_to_the_chosen_device(monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[tuple[nn.Module, torch.device]] = []
    monkeypatch.setattr(PipelineOptions, "select_device", lambda _options: torch.device("cuda", 1))
    monkeypatch.setattr(compilation, "move_model", lambda model, device: moves.append((model, device)))
    model = KINDS["mlp"].model()
    assert validate(model, PLAN, OPTIONS).device == torch.device("cuda", 1)
    assert moves == [(model, torch.device("cuda", 1))]


def test_compilation_needs_profile_and_cluster_or_neither() -> None:
    options = PipelineOptions(cluster=penstock.load_cluster("2 x k @ 1 GB/s"))
    with pytest.raises(InputError, match="profile and cluster must be given together"):
        compile_program(validate(KINDS["mlp"].model(), PLAN, options), options)


def test_the_logger_is_silent_by_default_and_records_phases(caplog: pytest.LogCaptureFixture) -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("penstock").handlers)
    with caplog.at_level(logging.DEBUG, logger="penstock"):
        build("mlp", PLAN, 0)
    assert any("actions for 2 ranks" in record.getMessage() for record in caplog.records)


def file_of(compiled: Compiled, tmp_path: Path) -> PipelineOptions:
    """Options with a file of the slices of a program."""
    save_slices(compiled.proof.program, tmp_path / "slices")
    return PipelineOptions(slices=tmp_path / "slices")


def test_a_rank_loads_its_slice_and_does_not_lower_the_program(tmp_path: Path) -> None:
    plan = plan_of([0, 2, 5, 7], [["d0"], ["d0"], ["d1"]], backward=[["d0"], ["d1"], ["d1"]], schedule="zb_h1")
    validated, whole, _ = build("mlp", plan, 0)
    stored = compile_program(validated, file_of(whole, tmp_path))
    for rank in range(3):
        one, other = stored.slice_of(rank), whole.slice_of(rank)
        assert list(one.actions()) == list(other.actions())
        assert (one.num_actions > 0) == (rank < 2)
        assert one.program == other.program
        assert find_split_backwards(one, stored.layout) == find_split_backwards(other, whole.layout)
        assert find_links(one, stored.layout, SEND_KINDS) == find_links(other, whole.layout, SEND_KINDS) != set()
    assert stored.layout == whole.layout
    assert "proof" not in vars(stored)
    assert stored.proof.program.same_actions(whole.proof.program)


def test_slices_of_another_plan_are_refused(tmp_path: Path) -> None:
    validated, whole, _ = build("mlp", PLAN, 0)
    options = file_of(whole, tmp_path)
    other = compile_program(dataclasses.replace(validated, plan=replace(PLAN, micro_batch_size=3)), options)
    with pytest.raises(MismatchError, match="were made for another plan") as refused:
        other.slice_of(0)
    assert str(options.slices) in str(refused.value)


def test_replica_syncs_that_the_profile_does_not_have_are_proved_beside_slices(tmp_path: Path) -> None:
    plan = plan_of([0, 5, 11], [["d0", "d1"], ["d1"]])
    validated, whole, _ = build("vgg", plan, 0)
    assert any(stage.needs_sync for stage in whole.layout.stages)
    assert "proof" in vars(compile_program(validated, file_of(whole, tmp_path)))
