"""Exports for torch: torch accepts the schedule, and trains with the bits of Penstock's runtime."""

from pathlib import Path
from unittest import mock

import pytest
import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

import penstock
from penstock.plan import Plan
from tests.support.exports import devices, export, make_plan, named_profile
from tests.support.runtime.exported_training import CHAIN_LAYERS, ROWS, Outcome, train_exported, train_ours
from tests.support.runtime.rank_pool import RankPool

SEQUENTIAL = named_profile([str(number) for number in range(6)])
CHAIN = named_profile(CHAIN_LAYERS)
TWO = devices(2)


def plan_of(
    cuts: list[int],
    groups: list[list[str]],
    profile: penstock.Profile = SEQUENTIAL,
    cluster: penstock.Cluster = TWO,
    **options: object,
) -> Plan:
    return make_plan(profile, cluster, cuts, groups, rows=ROWS // 4, **options)  # type: ignore[arg-type]


SEQUENTIAL_PLANS = {
    "1f1b": plan_of([0, 2, 6], [["d0"], ["d1"]]),
    "zero bubble": plan_of([0, 3, 6], [["d0"], ["d1"]], schedule="zb_h1"),
    "loop": plan_of([0, 1, 3, 4, 6], [["d0"], ["d1"], ["d0"], ["d1"]]),
    "v": plan_of([0, 1, 3, 4, 6], [["d0"], ["d1"], ["d1"], ["d0"]], schedule="zb_v"),
    "three stages on two": plan_of([0, 2, 4, 6], [["d1"], ["d0"], ["d1"]], schedule="auto"),
}


def written(plan: Plan, profile: penstock.Profile, cluster: penstock.Cluster, folder: Path) -> str:
    for name, text in export(plan, profile, cluster, "torch").files.items():
        (folder / name).write_text(text)
    return str(folder)


def joined(outcomes: list[Outcome]) -> Outcome:
    losses = max((item.losses for item in outcomes), key=len)
    return Outcome(losses, {name: value for item in outcomes for name, value in item.parameters.items()})


def check_same_bits(found: Outcome, expected: Outcome) -> None:
    assert set(found.parameters) == set(expected.parameters)
    assert all(map(torch.equal, found.losses, expected.losses))
    assert all(torch.equal(value, expected.parameters[name]) for name, value in found.parameters.items())


@pytest.mark.parametrize("name", list(SEQUENTIAL_PLANS))
def test_torch_trains_with_the_bits_of_penstock(rank_pool: RankPool, name: str, tmp_path: Path) -> None:
    plan = SEQUENTIAL_PLANS[name]
    folder = written(plan, SEQUENTIAL, TWO, tmp_path)
    ours = joined(rank_pool.run(2, train_ours, "sequential", plan))
    check_same_bits(joined(rank_pool.run(2, train_exported, "sequential", folder)), ours)


def test_a_model_with_a_forward_of_its_own_and_a_skip_connection(rank_pool: RankPool, tmp_path: Path) -> None:
    plan = plan_of([0, 2, 6], [["d0"], ["d1"]], CHAIN)
    folder = written(plan, CHAIN, TWO, tmp_path)
    ours = joined(rank_pool.run(2, train_ours, "chain", plan))
    check_same_bits(joined(rank_pool.run(2, train_exported, "chain", folder)), ours)


def test_replicas_average_their_gradients(rank_pool: RankPool, tmp_path: Path) -> None:
    four = devices(4)
    plan = plan_of([0, 3, 6], [["d0", "d2"], ["d1", "d3"]], cluster=four)
    folder = written(plan, SEQUENTIAL, four, tmp_path)
    found = rank_pool.run(4, train_exported, "sequential", folder)
    single = plan_of([0, 6], [["d0"]], cluster=devices(1))
    ours = joined(rank_pool.run(1, train_ours, "sequential", single))
    halves = [torch.stack(item.losses) for item in found if item.losses]
    assert torch.allclose(sum(halves) / 2, torch.stack(ours.losses), rtol=1e-5)  # type: ignore[arg-type]
    for item in found:
        for name, value in item.parameters.items():
            assert torch.allclose(value, ours.parameters[name], rtol=1e-5, atol=1e-6)


def accepted(folder: Path, plan: Plan, ranks: list[int]) -> _PipelineScheduleRuntime:
    """Torch's own validation and lowering of the schedule, on rank 0."""
    stages = []
    for number, rank in enumerate(ranks):
        if rank == 0:
            stage = mock.create_autospec(PipelineStage, instance=True)
            stage.group_size, stage.group_rank, stage.num_stages = max(ranks) + 1, 0, plan.num_stages
            stage.stage_index, stage.has_backward = number, True
            stage.is_first, stage.is_last = number == 0, number == plan.num_stages - 1
            stages.append(stage)
    schedule = _PipelineScheduleRuntime(stages, plan.num_microbatches, loss_fn=lambda *_: None)  # type: ignore[no-untyped-call]
    schedule._load_csv(str(folder / "schedule.csv"))
    return schedule


@pytest.mark.parametrize("name", list(SEQUENTIAL_PLANS))
def test_torch_accepts_the_schedule_and_finds_the_map(name: str, tmp_path: Path) -> None:
    plan = SEQUENTIAL_PLANS[name]
    written(plan, SEQUENTIAL, TWO, tmp_path)
    names = list(plan.devices)
    ranks = [names.index(stage.forward[0].device) for stage in plan.stages]
    schedule = accepted(tmp_path, plan, ranks)
    assert schedule.stage_index_to_group_rank == dict(enumerate(ranks))
