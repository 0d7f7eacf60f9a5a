"""Runs the exported plan with torch.distributed.pipelining: the stages of this rank, and their schedule.

    pipeline = load_pipeline()
    stages = pipeline.build_stages(model, sample)          # sample: the inputs of one micro-batch
    schedule = pipeline.build_schedule(stages, loss_fn)
    losses = []
    schedule.step(inputs, target=targets, losses=losses)   # inputs on the first rank, targets on the last one
    pipeline.average_gradients(stages)                     # over replicas; without replicas it does nothing

The process group is initialized before. Ranks are numbered as in ranks.csv.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, SplitPoint, pipeline
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime


class ExportedPipeline:
    """The plan of a folder, on this rank."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        data = json.loads((self.folder / "pipeline.json").read_text())
        self.num_microbatches: int = data["num_microbatches"]
        self.micro_batch_size: int = data["micro_batch_size"]
        self.num_ranks: int = data["pipeline_ranks"]
        self.num_replicas: int = data["replicas"]
        self.modules: list[list[str]] = [stage["modules"] for stage in data["stages"]]
        self.rank_of_stage: list[int] = [stage["rank"] for stage in data["stages"]]
        world = self.num_ranks * self.num_replicas
        if dist.get_world_size() != world:
            raise RuntimeError(f"the plan is for {world} ranks, but there are {dist.get_world_size()}")
        self.pipeline_rank, self.replica = divmod(dist.get_rank(), self.num_replicas)
        # Every rank creates all groups, in the same order.
        pipelines = [dist.new_group(list(range(item, world, self.num_replicas))) for item in range(self.num_replicas)]
        starts = range(0, world, self.num_replicas)
        replicas = [dist.new_group(list(range(start, start + self.num_replicas))) for start in starts]
        self.group = pipelines[self.replica]
        self.replica_group = replicas[self.pipeline_rank]

    def build_stages(self, model: nn.Module, sample: Any = None, device: Any = "cpu") -> list[Any]:
        """Build the stages of this rank.

        The children of an nn.Sequential are divided as they are. Any other model is divided by torch's tracer, which
        needs `sample`: the inputs of one micro-batch, or a tuple with its positional inputs.
        """
        device = torch.device(device)
        numbers = [number for number, rank in enumerate(self.rank_of_stage) if rank == self.pipeline_rank]
        if type(model) is nn.Sequential:
            return [self._sequential_stage(model, number, device) for number in numbers]
        if sample is None:
            raise ValueError("a model that is not an nn.Sequential needs sample=(inputs of one micro-batch, ...)")
        inputs = sample if isinstance(sample, tuple) else (sample,)
        points = {modules[0]: SplitPoint.BEGINNING for modules in self.modules[1:]}
        pipe = pipeline(model, inputs, split_spec=points)
        if pipe.num_stages != len(self.modules):
            raise RuntimeError(f"torch divided the model into {pipe.num_stages} stages, not {len(self.modules)}")
        return [pipe.build_stage(number, device, self.group) for number in numbers]

    def _sequential_stage(self, model: nn.Sequential, number: int, device: torch.device) -> PipelineStage:
        part = nn.Sequential()
        for name in self.modules[number]:
            part.add_module(name, model.get_submodule(name))
        return PipelineStage(part.to(device), number, len(self.modules), device, group=self.group)

    def build_schedule(self, stages: list[Any], loss_fn: Callable[..., Tensor], **options: Any) -> Any:
        """Build the schedule of the plan. Gradients are averaged over micro-batches, as a mean loss needs."""
        schedule: Any = _PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
            stages, self.num_microbatches, loss_fn=loss_fn, **options
        )
        schedule._load_csv(str(self.folder / "schedule.csv"), format="compute_only")
        return schedule

    def average_gradients(self, stages: list[Any]) -> None:
        """Average the gradients of each stage over its replicas."""
        if self.num_replicas == 1:
            return
        for stage in stages:
            for parameter in stage.submod.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad, group=self.replica_group)
                    parameter.grad /= self.num_replicas


def load_pipeline(folder: str | Path | None = None) -> ExportedPipeline:
    """Load the plan of a folder, by default of the folder of this file. Every rank calls it."""
    return ExportedPipeline(folder or Path(__file__).parent)
