"""Ways to train a workload. Each call of `step` is a whole iteration with its optimizer step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from benchmarks.runtime.workloads import Workload
from penstock import Cluster, Pipeline, Plan, Profile

LEARNING_RATE = 1e-4
TORCH_KINDS = ("gpipe", "1f1b", "zb1p", "interleaved zb1p", "zbv")
"""ScheduleGPipe, Schedule1F1B, ScheduleInterleavedZeroBubble with one and with two stages per rank, and
ScheduleZBVZeroBubble (two stages per rank)."""
NUM_STAGES = {"gpipe": 2, "1f1b": 2, "zb1p": 2, "interleaved zb1p": 4, "zbv": 4}


class Contender(Protocol):
    """A way to train."""

    def step(self, inputs: Tensor, targets: Tensor) -> float | None:
        """Run one iteration; returns the loss on ranks that have it."""


def make_optimizer(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE)


class SingleProcess:
    """Plain torch in one process, micro-batch after micro-batch."""

    def __init__(self, workload: Workload, num_microbatches: int) -> None:
        self._workload = workload
        self._num_microbatches = num_microbatches
        self._model = workload.model()
        self._optimizer = make_optimizer(list(self._model.parameters()))

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        self._optimizer.zero_grad()
        total = 0.0
        for x, y in zip(inputs.chunk(self._num_microbatches), targets.chunk(self._num_microbatches), strict=True):
            loss = self._workload.loss(self._model(x), y) * (1 / self._num_microbatches)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        self._optimizer.step()
        return total


@dataclass(frozen=True)
class PenstockPlan:
    """A plan for Penstock, with its profile and its cluster."""

    plan: Plan
    profile: Profile
    cluster: Cluster


class PenstockTrainer:
    """Penstock's pipeline."""

    def __init__(self, workload: Workload, spec: PenstockPlan) -> None:
        self.pipe = Pipeline(
            workload.model(),
            spec.plan,
            workload.loss,
            profile=spec.profile,
            cluster=spec.cluster,
            timeout_s=60,
        )
        self._optimizer = self.pipe.optimizer(torch.optim.AdamW, lr=LEARNING_RATE)

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        self._optimizer.zero_grad()
        loss = self.pipe.step(inputs, targets)
        self._optimizer.step()
        return loss.item()


@dataclass(frozen=True)
class TorchPlan:
    """A schedule of torch.distributed.pipelining, with cuts before these blocks."""

    kind: str
    num_microbatches: int
    cuts: tuple[int, ...]


class TorchTrainer:
    """torch.distributed.pipelining, with stages made of the model's blocks."""

    def __init__(self, workload: Workload, spec: TorchPlan) -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        blocks = list(workload.model())
        ends = [0, *spec.cuts, len(blocks)]
        num_stages = len(ends) - 1
        numbers = [rank] if num_stages == world else [rank, _second(spec.kind, rank, world)]
        parts = {number: nn.Sequential(*blocks[ends[number] : ends[number + 1]]) for number in numbers}
        stages = [PipelineStage(part, number, num_stages, torch.device("cpu")) for number, part in parts.items()]
        single: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
        several: dict[str, Any] = {
            "zb1p": ScheduleInterleavedZeroBubble,
            "interleaved zb1p": ScheduleInterleavedZeroBubble,
            "zbv": ScheduleZBVZeroBubble,
        }
        if spec.kind in single:
            self._schedule = single[spec.kind](stages[0], spec.num_microbatches, loss_fn=workload.loss)
        else:
            self._schedule = several[spec.kind](stages, spec.num_microbatches, loss_fn=workload.loss)
        self._has_first = 0 in numbers
        self._has_last = num_stages - 1 in numbers
        parameters = [item for part in parts.values() for item in part.parameters()]
        self._optimizer = make_optimizer(parameters or [nn.Parameter(torch.empty(0))])

    def step(self, inputs: Tensor, targets: Tensor) -> float | None:
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


def _second(kind: str, rank: int, world: int) -> int:
    """The second stage of a rank, in a V or in a loop."""
    return 2 * world - 1 - rank if kind == "zbv" else world + rank


def make_contender(workload: Workload, num_microbatches: int, spec: PenstockPlan | TorchPlan | int) -> Contender:
    """Build a contender. An integer means a single process that takes the batch in this number of parts."""
    if isinstance(spec, PenstockPlan):
        return PenstockTrainer(workload, spec)
    if isinstance(spec, TorchPlan):
        return TorchTrainer(workload, spec)
    assert spec in (1, num_microbatches), "a single process takes micro-batches or the whole batch"
    return SingleProcess(workload, spec)
