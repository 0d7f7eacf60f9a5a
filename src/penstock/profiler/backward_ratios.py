"""Measures the extra time of a split backward and of a remote backward.

The model runs as one stage in this process, in turns: with a fused backward, with deferred weight gradients, and with
the saved-tensor transfer of a remote backward, but without the message. Times are CPU times.
"""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch
from torch import nn

from penstock.model import (
    Block,
    keep_freed_memory,
    mean_loss,
    plain_inputs,
    preserve_state,
    rows_of,
    tensors_of,
)
from penstock.profiler.steadiness import median_error
from penstock.runtime.remote_backward import SavedTensorTransfer
from penstock.runtime.stage import StageJob, TorchStage
from penstock.runtime.tensors import Rows, pack

MIN_TURNS, MAX_TURNS, LIMIT_S = 3, 41, 4.0
"""Turns continue until both ratios are steady or `LIMIT_S` seconds have passed, within these numbers."""
TOLERANCE = 0.01
"""The standard error of a steady ratio."""


class Ratios(NamedTuple):
    """Extra time as a fraction of the time of the plain variant."""

    split: float
    """I and W over a fused backward. The extra time of the forward is included."""
    remote: float
    """Forward and backward on different devices over both on one device."""


class _Turn(NamedTuple):
    """CPU seconds of the model: forward and backward, fused and split; both together with a remote backward."""

    fused: tuple[float, float]
    split: tuple[float, float]
    remote: float

    @property
    def ratios(self) -> Ratios:
        """Both ratios, which may be negative by chance."""
        whole = sum(self.fused)
        return Ratios((sum(self.split) - whole) / self.fused[1], (self.remote - whole) / whole)


def measure_ratios(
    model: nn.Module, inputs: Any, loss: Callable[..., Any] | None, targets: Any, blocks: Sequence[Block]
) -> Ratios:
    """Measure both ratios for a model on the CPU. The model is not changed."""
    keep_freed_memory()
    inputs, targets = plain_inputs(inputs), plain_inputs(targets)
    with preserve_state(model):
        runner = TorchStage(blocks, 0, model, seed=0, is_split=False, device=torch.device("cpu"))
        payload, rows, transfer = pack(inputs)[0], Rows(0, rows_of(inputs)), SavedTensorTransfer()

        compute_loss = mean_loss(loss, targets)
        job = StageJob(0, 0, rows, compute_loss, False, None, tensors_of(inputs))

        def local(*, defer: bool) -> tuple[float, float]:
            start_s = process_time()
            _, graph = runner.run(payload, 0, rows, compute_loss, keep=True, defer=defer)
            forward = process_time()
            runner.backward(graph, graph.loss_grads)
            runner.backward_weight(graph)
            return forward - start_s, process_time() - forward

        def remote() -> float:
            start_s = process_time()
            if transfer.reason(runner, payload, job):
                runner.run(payload, 0, rows, compute_loss, keep=False, defer=False)
                graph = runner.recompute(payload, 0, rows, compute_loss, defer=False)
            else:
                _, message = transfer.run(runner, payload, job, "trying")
                graph = transfer.graph(runner, message, job, payload)
                del message
            runner.backward(graph, graph.loss_grads)
            return process_time() - start_s

        turns: list[_Turn] = []
        started = perf_counter()
        # The first turn includes one-time analysis of the model.
        while len(turns) < 1 + MIN_TURNS or (
            len(turns) < MAX_TURNS and perf_counter() - started < LIMIT_S and not _are_steady(turns[1:])
        ):
            turns.append(_Turn(local(defer=False), local(defer=True), remote()))
    return Ratios(*(max(0.0, median(values)) for values in zip(*(turn.ratios for turn in turns[1:]), strict=True)))


def _are_steady(turns: Sequence[_Turn]) -> bool:
    return all(median_error(values) <= TOLERANCE for values in zip(*(turn.ratios for turn in turns), strict=True))
