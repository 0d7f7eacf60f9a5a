"""A rank that trains with DeepSpeed: with an exported plan, or with one of DeepSpeed's own partitions."""

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.exports.exported_module import load_exported
from benchmarks.runtime.contenders import LEARNING_RATE
from benchmarks.runtime.workloads import Workload


class DeepSpeedTrainer:
    """DeepSpeed's pipeline engine."""

    def __init__(self, workload: Workload, folder: str, partition: str | None) -> None:
        os.environ["LOCAL_RANK"] = str(dist.get_rank())
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        exported = load_exported(Path(folder) / "pipeline_module.py")
        layers = list(workload.model())
        if partition is None:
            module = exported.PlannedPipelineModule(layers, loss_fn=workload.loss)
        else:
            module = deepspeed.pipe.PipelineModule(
                layers, num_stages=2, loss_fn=workload.loss, partition_method=partition
            )
        self.cuts = [int(cut) for cut in module.parts]
        options = json.loads((Path(folder) / "ds_config.json").read_text())
        optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE)
        self._engine: Any = deepspeed.initialize(model=module, optimizer=optimizer, config=options)[0]
        self._rows = workload.rows

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """Run one iteration; all ranks get the loss."""
        batches = zip(torch.split(inputs, self._rows), torch.split(targets, self._rows), strict=True)
        return float(self._engine.train_batch(batches))


def build_deepspeed(
    memory: dict[str, Any], name: str, workload: Workload, num_microbatches: int, folder: str, partition: str | None
) -> tuple[list[int], list[float]]:
    """Build the training and keep it; returns its cuts and the losses of its first iterations."""
    trainer = DeepSpeedTrainer(workload, folder, partition)
    memory[name] = trainer
    return trainer.cuts, [trainer.step(*workload.batch(step, num_microbatches)) for step in range(2)]
