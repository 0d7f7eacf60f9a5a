"""A rank that trains by an export for torch, as the README of the export states. Functions that ranks run."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.exports.exported_module import load_exported
from benchmarks.runtime.contenders import LEARNING_RATE
from benchmarks.runtime.workloads import Workload


class ExportedTrainer:
    """torch's schedule runtime with the stages and the order of an exported plan."""

    def __init__(self, workload: Workload, folder: str) -> None:
        pipeline = load_exported(Path(folder) / "load.py").load_pipeline()
        self._stages = pipeline.build_stages(workload.model())
        self._schedule = pipeline.build_schedule(self._stages, workload.loss)
        numbers = {stage.stage_index for stage in self._stages}
        self._has_first, self._has_last = 0 in numbers, len(pipeline.modules) - 1 in numbers
        parameters = [item for stage in self._stages for item in stage.submod.parameters()]
        self._optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE)

    def step(self, inputs: Tensor, targets: Tensor) -> float | None:
        """Run one iteration; returns the loss on the rank that has it."""
        self._optimizer.zero_grad()
        losses: list[Tensor] = []
        # Merging the outputs would only cost time.
        self._schedule.step(
            *([inputs] if self._has_first else []),
            target=targets if self._has_last else None,
            losses=losses if self._has_last else None,
            return_outputs=False,
        )
        self._optimizer.step()
        return sum(loss.item() for loss in losses) / len(losses) if losses else None


def build_exported(
    memory: dict[str, Any], name: str, workload: Workload, num_microbatches: int, folder: str, steps: int
) -> list[float | None]:
    """Build the training, keep it, and return the losses of its first iterations."""
    trainer = ExportedTrainer(workload, folder)
    memory[name] = trainer
    return [trainer.step(*workload.batch(step, num_microbatches)) for step in range(steps)]
