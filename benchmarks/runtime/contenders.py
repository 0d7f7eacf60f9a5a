"""Ways to train a subject, all with the same interface: one call is a whole iteration with its optimizer step."""

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

from benchmarks.runtime.workloads import Subject
from penstock import Cluster, Pipeline, Plan, Profile

LEARNING_RATE = 1e-4
TORCH_KINDS = ("gpipe", "1f1b", "zb1p", "interleaved zb1p", "zbv")
"""ScheduleGPipe, Schedule1F1B, ScheduleInterleavedZeroBubble with one and with two stages a rank, and
ScheduleZBVZeroBubble (two stages a rank)."""
NUM_STAGES = {"gpipe": 2, "1f1b": 2, "zb1p": 2, "interleaved zb1p": 4, "zbv": 4}


class Contender(Protocol):
    """Something that trains."""

    def step(self, inputs: Tensor, targets: Tensor) -> float | None:
        """One iteration. The loss, where it is known."""


def make_optimizer(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE)


class Alone:
    """Plain torch in one process, micro-batch after micro-batch."""

    def __init__(self, subject: Subject, num_microbatches: int) -> None:
        self._subject = subject
        self._num_microbatches = num_microbatches
        self._model = subject.model()
        self._optimizer = make_optimizer(list(self._model.parameters()))

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        self._optimizer.zero_grad()
        total = 0.0
        for x, y in zip(inputs.chunk(self._num_microbatches), targets.chunk(self._num_microbatches), strict=True):
            loss = self._subject.loss(self._model(x), y) * (1 / self._num_microbatches)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        self._optimizer.step()
        return total


@dataclass(frozen=True)
class OurPlan:
    """What Penstock is to run."""

    plan: Plan
    profile: Profile
    cluster: Cluster


class Ours:
    """Penstock's pipeline."""

    def __init__(self, subject: Subject, given: OurPlan) -> None:
        self.pipe = Pipeline(
            subject.model(), given.plan, subject.loss, profile=given.profile, cluster=given.cluster, timeout_s=60
        )
        self._optimizer = self.pipe.optimizer(torch.optim.AdamW, lr=LEARNING_RATE)

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        self._optimizer.zero_grad()
        loss = self.pipe.step(inputs, targets)
        self._optimizer.step()
        return loss.item()


@dataclass(frozen=True)
class TorchPlan:
    """What torch's own pipelining is to run: stages end before these blocks."""

    kind: str
    num_microbatches: int
    cuts: tuple[int, ...]


class Torchs:
    """torch.distributed.pipelining, its stages made by hand from the blocks."""

    def __init__(self, subject: Subject, given: TorchPlan) -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        blocks = list(subject.model())
        ends = [0, *given.cuts, len(blocks)]
        num_stages = len(ends) - 1
        here = [rank] if num_stages == world else [rank, _second(given.kind, rank, world)]
        parts = {number: nn.Sequential(*blocks[ends[number] : ends[number + 1]]) for number in here}
        stages = [PipelineStage(part, number, num_stages, torch.device("cpu")) for number, part in parts.items()]
        single: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
        several: dict[str, Any] = {
            "zb1p": ScheduleInterleavedZeroBubble,
            "interleaved zb1p": ScheduleInterleavedZeroBubble,
            "zbv": ScheduleZBVZeroBubble,
        }
        if given.kind in single:
            self._schedule = single[given.kind](stages[0], given.num_microbatches, loss_fn=subject.loss)
        else:
            self._schedule = several[given.kind](stages, given.num_microbatches, loss_fn=subject.loss)
        self._has_first = 0 in here
        self._has_last = num_stages - 1 in here
        parameters = [item for part in parts.values() for item in part.parameters()]
        self._optimizer = make_optimizer(parameters or [nn.Parameter(torch.empty(0))])

    def step(self, inputs: Tensor, targets: Tensor) -> float | None:
        self._optimizer.zero_grad()
        losses: list[Tensor] = []
        # Without outputs: putting them together would only cost time.
        self._schedule.step(
            *([inputs] if self._has_first else []),
            target=targets if self._has_last else None,
            losses=losses if self._has_last else None,
            return_outputs=False,
        )
        self._optimizer.step()
        return sum(loss.item() for loss in losses) / len(losses) if losses else None


def _second(kind: str, rank: int, world: int) -> int:
    """The second stage of a rank: in a V the last rank has two that follow each other, else stages go round."""
    return 2 * world - 1 - rank if kind == "zbv" else world + rank


def make_contender(subject: Subject, num_microbatches: int, given: OurPlan | TorchPlan | int) -> Contender:
    """A number stands for one process that takes the batch in so many parts."""
    if isinstance(given, OurPlan):
        return Ours(subject, given)
    if isinstance(given, TorchPlan):
        return Torchs(subject, given)
    assert given in (1, num_microbatches), "one process takes micro-batches, or the whole batch"
    return Alone(subject, given)
