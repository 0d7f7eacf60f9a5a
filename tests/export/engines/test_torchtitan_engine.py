"""torchtitan's own configuration takes exports; its own code divides a model and places the stages as the plan does."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from penstock.plan import Plan, find_grid
from tests.support.engine_packages import engine_module
from tests.support.exports import block_names, devices, export, make_plan, named_profile
from tests.support.reach import reach, reaches

FOUR = devices(4)
BLOCKS = named_profile(block_names(6))
PLANS = {
    "straight with replicas": ([0, 5, 14], "d0,d1 d2,d3", {"recompute": [0, 1]}),
    "loop": ([0, 1, 5, 9, 14], "d0 d1 d0 d1", {"schedule": "auto_fused"}),
    "v": ([0, 3, 5, 9, 14], "d2 d0 d0 d2", {"schedule": "gpipe"}),
}
pytestmark = pytest.mark.filterwarnings("ignore")


def plan_of(name: str) -> Plan:
    cuts, groups, options = PLANS[name]
    return make_plan(BLOCKS, FOUR, cuts, [group.split(",") for group in groups.split()], **options)  # type: ignore[arg-type]


def configured(plan: Plan, folder: Path) -> Any:
    """A configuration of torchtitan's own classes, after the exported function."""
    configs = engine_module("torchtitan.config")
    engine_module("torchtitan.distributed.activation_checkpoint")
    for name, text in export(plan, BLOCKS, FOUR, "torchtitan").files.items():
        (folder / name).write_text(text)
    spec = importlib.util.spec_from_file_location("planned", folder / "planned.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = SimpleNamespace(
        parallelism=configs.ParallelismConfig(), training=configs.TrainingConfig(), activation_checkpoint="unset"
    )
    return module.apply_plan(config)


@pytest.mark.parametrize("name", list(PLANS))
def test_torchtitan_places_the_stages_and_loads_the_schedule(name: str, tmp_path: Path) -> None:
    titan = engine_module("torchtitan.distributed.pipeline_parallel")
    plan = plan_of(name)
    grid = find_grid(plan)
    config = configured(plan, tmp_path)
    parallelism = config.parallelism
    assert (config.activation_checkpoint is not None) == plan.stages[0].recompute
    for rank in range(grid.num_ranks):
        found = titan._get_pp_rank_to_stage_indices_mapping(
            rank, parallelism.pipeline_parallel_degree, parallelism.pipeline_parallel_schedule, plan.num_stages
        )
        assert tuple(sorted(found)) == grid.stages_of(rank)
    stages = [
        SimpleNamespace(
            stage_index=number,
            is_first=number == 0,
            is_last=number == plan.num_stages - 1,
            num_stages=plan.num_stages,
            group_size=grid.num_ranks,
            group_rank=0,
            group=None,
            has_backward=True,
            device=torch.device("cpu"),
            stage_index_to_group_rank={},
        )
        for number in grid.stages_of(0)
    ]
    schedule = titan._build_pipeline_schedule(
        parallelism=parallelism,
        local_batch_size=config.training.local_batch_size,
        stages=stages,
        loss_fn=lambda *_: None,
    )
    assert schedule._n_microbatches == plan.num_microbatches
    assert schedule.stage_index_to_group_rank == dict(enumerate(grid.rank_of_stage))


class Decoder(nn.Module):
    """The names of torchtitan's decoders, and a forward that skips what a stage does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings: nn.Module | None = nn.Linear(4, 4)
        self.layers = nn.ModuleDict({str(number): nn.Linear(4, 4) for number in range(6)})
        self.norm: nn.Module | None = nn.LayerNorm(4)
        self.lm_head: nn.Module | None = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in (self.tok_embeddings, *self.layers.values(), self.norm, self.lm_head):
            x = x if part is None else part(x)
        return x


@reaches(several=0.2)
@given(cuts=st.lists(st.sampled_from([1, 3, 5, 7, 9, 11, 13]), min_size=1, max_size=3, unique=True))
def test_the_parts_make_up_the_whole_model(cuts: list[int]) -> None:
    titan = engine_module("torchtitan.distributed.pipeline_parallel")
    reach("several", len(cuts) > 1)
    groups = [[f"d{number}"] for number in range(len(cuts) + 1)]
    plan = make_plan(BLOCKS, FOUR, [0, *sorted(cuts), 14], groups, schedule="1f1b")
    fields = json.loads(export(plan, BLOCKS, FOUR, "torchtitan").files["parallelism.json"])
    model = Decoder()
    x = expected = torch.randn(2, 4)
    parts = [titan._split_module(model, names) for names in fields["parallelism"]["module_fqns_per_model_part"]]
    for part in parts:
        x = part(x)
    assert torch.equal(x, model(expected))
    assert sum(len(list(part.parameters())) for part in parts) == len(list(model.parameters()))
