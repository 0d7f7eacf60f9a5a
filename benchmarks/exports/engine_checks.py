"""Whether an engine's own code accepts an export. Each check raises if it does not; one without a package is None."""

import importlib
import json
import os
import shlex
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

from penstock.plan import Grid, Plan, find_grid

Check = Callable[[Plan, Path], None]


def _module(name: str) -> Any:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def accept_torch(plan: Plan, folder: Path) -> None:
    """Torch loads, validates and lowers the schedule of every rank."""
    schedules = _module("torch.distributed.pipelining.schedules")
    stage_type = _module("torch.distributed.pipelining").PipelineStage
    grid = find_grid(plan)
    for rank in range(grid.num_ranks):
        stages = [_stage(stage_type, grid, plan, rank, number) for number in grid.stages_of(rank)]
        schedule = schedules._PipelineScheduleRuntime(stages, plan.num_microbatches, loss_fn=lambda *_: None)
        schedule._load_csv(str(folder / "schedule.csv"))
        assert schedule.stage_index_to_group_rank == dict(enumerate(grid.rank_of_stage))


def _stage(stage_type: Any, grid: Grid, plan: Plan, rank: int, number: int) -> Any:
    stage = mock.create_autospec(stage_type, instance=True)
    stage.group_size, stage.group_rank, stage.num_stages = grid.num_ranks, rank, plan.num_stages
    stage.stage_index, stage.has_backward = number, True
    stage.is_first, stage.is_last = number == 0, number == plan.num_stages - 1
    return stage


def accept_torchtitan(plan: Plan, folder: Path) -> None:
    """Torchtitan's configuration classes take the fields, and its code places the stages as the plan does."""
    configs, titan = _module("torchtitan.config"), _module("torchtitan.distributed.pipeline_parallel")
    fields = json.loads((folder / "parallelism.json").read_text())["parallelism"]
    parallelism = configs.ParallelismConfig(**fields, pipeline_parallel_schedule_csv=str(folder / "schedule.csv"))
    grid = find_grid(plan)
    for rank in range(grid.num_ranks):
        found = titan._get_pp_rank_to_stage_indices_mapping(
            rank, parallelism.pipeline_parallel_degree, parallelism.pipeline_parallel_schedule, plan.num_stages
        )
        assert tuple(sorted(found)) == grid.stages_of(rank)
    accept_torch(plan, folder)


def accept_automodel(plan: Plan, folder: Path) -> None:
    """Automodel's parser takes the recipe, and its code places the stages as the plan does."""
    recipe = _module("yaml").safe_load((folder / "recipe.yaml").read_text())
    parsed = _module("nemo_automodel.recipes._dist_utils").parse_distributed_section(recipe["distributed"])
    pipelining = _module("nemo_automodel.components.distributed.pipelining.functional")
    grid, config = find_grid(plan), parsed["pipeline_config"]
    assert len(config.module_fqns_per_model_part) == plan.num_stages
    style = "v" if config.pp_schedule == "ZBVZeroBubble" else "loop"
    for rank in range(grid.num_ranks):
        found = pipelining.stage_ids_this_rank(rank, grid.num_ranks, plan.num_stages, style=style)
        assert tuple(sorted(found)) == grid.stages_of(rank)
    accept_torch(plan, folder)


def accept_megatron(plan: Plan, folder: Path) -> None:
    """Megatron-Core's configuration takes the layout and counts the blocks of every stage."""
    words = shlex.split((folder / "megatron.sh").read_text(), comments=True)
    found = {word: words[index + 1] for index, word in enumerate(words[:-1]) if word.startswith("--")}
    number = found.get("--recompute-num-layers")
    config = _module("megatron.core.transformer.transformer_config").TransformerConfig(
        num_layers=int(found["--num-layers"]),
        hidden_size=64,
        num_attention_heads=2,
        pipeline_model_parallel_size=int(found["--pipeline-model-parallel-size"]),
        pipeline_dtype=_module("torch").float32,
        pipeline_model_parallel_layout=found["--pipeline-model-parallel-layout"],
        recompute_granularity=found.get("--recompute-granularity"),
        recompute_method=found.get("--recompute-method"),
        recompute_num_layers=int(number) if number else None,
    )
    assert sum(map(len, config.pipeline_model_parallel_layout.layout)) == plan.num_stages


def accept_deepspeed(plan: Plan, folder: Path) -> None:
    """DeepSpeed's configuration takes the batch sizes."""
    data = json.loads((folder / "ds_config.json").read_text())
    data["train_batch_size"] //= find_grid(plan).num_replicas  # without ranks, DeepSpeed counts one replica
    config = _module("deepspeed.runtime.config").DeepSpeedConfig(data)
    assert config.gradient_accumulation_steps == plan.num_microbatches
    cuts = json.loads((folder / "partition.json").read_text())["partitions"][0]["cuts"]
    assert len(cuts) == plan.num_stages + 1


CHECKS: Mapping[str, Check | None] = MappingProxyType(
    {
        "torch": accept_torch,
        "torchtitan": accept_torchtitan,
        "automodel": accept_automodel,
        "megatron": accept_megatron,
        "deepspeed": accept_deepspeed,
        "flagscale": None,
    }
)


def accept(engine: str, plan: Plan, files: Mapping[str, str]) -> str:
    """The verdict of the engine's own code: "accepted", "no package", or what is wrong."""
    check = CHECKS[engine]
    if check is None:
        return "no package"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(plan, folder)
        except ImportError as error:
            return f"not installed ({error.name}): make test-exports"
        except Exception as error:
            return f"refused by the engine: {error}"[:200]
    return "accepted"
