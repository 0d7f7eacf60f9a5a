"""Stages that sleep instead of computing. Their payloads have the right size and no meaning."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from penstock.emulation.clock import DeviceClock
from penstock.emulation.rank.scratch import Scratch
from penstock.emulation.rank.tensor_sizes import StageSizes
from penstock.runtime.remote_backward import RecomputeHeader
from penstock.runtime.stage import ComputeLoss, ReplicaSync, StageJob
from penstock.runtime.tensors import PackedPayload, Rows, pack


@dataclass(frozen=True)
class ActionSeconds:
    """Durations of a stage's actions on this device, in seconds of this machine."""

    forward_s: float = 0.0
    recompute_s: float = 0.0
    input_grad_s: float = 0.0
    weight_grad_s: float = 0.0
    backward_s: float = 0.0
    """Fused backward."""


@dataclass(frozen=True)
class SleepingGraph:
    """What a forward leaves for its backward: its number of rows, and whether the backward is split."""

    num_rows: int
    is_split: bool
    loss_grads: list[Tensor] = field(default_factory=list)


class SleepingStage:
    """`StageRunner` of an emulated device.

    Args:
        clock: The time of the device.
        seconds: Durations of the actions.
        sizes: Sizes of the payloads.
        scratch: Memory of the payloads.
        is_first: Whether it is the first stage, whose inputs need no gradient.
        is_last: Whether it is the last stage, whose output is the loss.
    """

    def __init__(
        self,
        clock: DeviceClock,
        seconds: ActionSeconds,
        sizes: StageSizes,
        scratch: Scratch,
        *,
        is_first: bool,
        is_last: bool,
    ) -> None:
        self.replica_sync: ReplicaSync | None = None
        self._clock = clock
        self._seconds = seconds
        self._sizes = sizes
        self._is_first = is_first
        self._is_last = is_last
        self._scratch = scratch

    def begin(self, inputs: Any) -> None:
        """Start an iteration."""

    def run(
        self,
        inputs: PackedPayload,  # noqa: ARG002
        step: int,  # noqa: ARG002
        rows: Rows,
        compute_loss: ComputeLoss | None,  # noqa: ARG002
        *,
        keep: bool,  # noqa: ARG002
        defer: bool,
    ) -> tuple[PackedPayload, SleepingGraph]:
        """Sleep for a forward."""
        self._clock.work(self._seconds.forward_s)
        out = torch.zeros(()) if self._is_last else self._scratch.rows(rows.num, self._sizes.output_width)
        return pack(out)[0], self.graph(rows, defer=defer)

    def evaluate(self, inputs: PackedPayload, step: int, rows: Rows, compute_loss: ComputeLoss | None) -> PackedPayload:
        """Sleep for a forward."""
        return self.run(inputs, step, rows, compute_loss, keep=False, defer=False)[0]

    def recompute(self, rows: Rows, *, defer: bool) -> SleepingGraph:
        """Sleep for a recompute."""
        self._clock.work(self._seconds.recompute_s)
        return self.graph(rows, defer=defer)

    def backward(self, graph: SleepingGraph, grads: Sequence[Tensor | None]) -> list[Tensor | None]:  # noqa: ARG002
        """Sleep for the input gradient, and for the weight gradient too unless the backward is split."""
        self._clock.work(self._seconds.input_grad_s if graph.is_split else self._seconds.backward_s)
        return [] if self._is_first else [self._scratch.rows(graph.num_rows, self._sizes.input_width)]

    def backward_weight(self, graph: SleepingGraph) -> None:  # noqa: ARG002
        """Sleep for the weight gradient."""
        self._clock.work(self._seconds.weight_grad_s)

    def buffers(self) -> list[Tensor]:
        """Return no buffers."""
        return []

    def buffer_versions(self) -> list[tuple[int, int]]:
        """Return no buffers."""
        return []

    def graph(self, rows: Rows, *, defer: bool) -> SleepingGraph:
        """Return the graph of a forward of these rows."""
        return SleepingGraph(rows.num, defer, [torch.ones(())] if self._is_last else [])

    def saved_tensors(self, rows: Rows) -> PackedPayload:
        """Return the message for a remote backward."""
        return pack(self._scratch.rows(rows.num, self._sizes.kept_width))[0]


class SleepingTransfer:
    """`Transfer` of an emulation: remote backwards get as many bytes as a forward saves."""

    def __init__(self) -> None:
        self.mechanisms: dict[int, str] = {}

    def reason(self, runner: SleepingStage, inputs: PackedPayload, job: StageJob) -> str:  # noqa: ARG002
        """Return no reason for a recompute: saved tensors can always be sent."""
        return ""

    def run(
        self,
        runner: SleepingStage,
        inputs: PackedPayload,
        job: StageJob,
        description: str,  # noqa: ARG002
    ) -> tuple[PackedPayload, PackedPayload]:
        """Sleep for a forward. Return its output, and the message for its backward."""
        out, _ = runner.run(inputs, job.step, job.rows, job.compute_loss, keep=True, defer=job.defer)
        return out, runner.saved_tensors(job.rows)

    def graph(
        self,
        runner: SleepingStage,
        message: PackedPayload,
        job: StageJob,
        from_batch: PackedPayload | None,  # noqa: ARG002
    ) -> SleepingGraph:
        """Return the graph for a backward. Sleep for a recompute, if the message asks for one."""
        if message.values and isinstance(message.values[0], RecomputeHeader):
            return runner.recompute(job.rows, defer=job.defer)
        return runner.graph(job.rows, defer=job.defer)
