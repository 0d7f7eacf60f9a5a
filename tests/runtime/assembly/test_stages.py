"""Stages are built and run without a process group."""

import torch
import torch.distributed as dist

from penstock.runtime.assembly.compilation import compile_program, validate
from penstock.runtime.assembly.stages import build_stages
from penstock.runtime.tensors.packing import pack
from penstock.runtime.tensors.rows import Rows
from tests.support.runtime.assembly import NO_TRANSPORT, OPTIONS, PLAN, build
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import plan_of


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
