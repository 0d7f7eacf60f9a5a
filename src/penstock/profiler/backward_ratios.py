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

from penstock.model import find_blocks, keep_freed_memory, mean_loss, plain_inputs, preserve_state, rows_of, tensors_of
from penstock.runtime.remote_backward import SavedTensorTransfer
from penstock.runtime.stage import StageJob, TorchStage
from penstock.runtime.tensors import Rows, pack

MIN_TURNS, MAX_TURNS, LIMIT_S = 5, 41, 8.0
"""Turns continue until `LIMIT_S` seconds have passed, within these numbers."""


class Ratios(NamedTuple):
    """Extra time as a fraction of the time of the plain variant."""

    split: float
    """I and W over a fused backward. The extra time of the forward is included."""
    remote: float
    """Forward and backward on different devices over both on one device."""


def measure_ratios(
    model: nn.Module, inputs: Any, loss: Callable[..., Any] | None, targets: Any, blocks: Sequence[str] | None
) -> Ratios:
    """Measure both ratios for a model on the CPU. The model is not changed."""
    keep_freed_memory()
    inputs, targets = plain_inputs(inputs), plain_inputs(targets)
    with preserve_state(model):
        runner = TorchStage(
            find_blocks(model, blocks, inputs), 0, model, seed=0, is_split=False, device=torch.device("cpu")
        )
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

        turns: list[tuple[tuple[float, float], tuple[float, float], float]] = []
        started = perf_counter()
        while len(turns) < 1 + MIN_TURNS or (len(turns) < MAX_TURNS and perf_counter() - started < LIMIT_S):
            turns.append((local(defer=False), local(defer=True), remote()))
    # The first turn includes one-time analysis of the model.
    del turns[0]
    plain = median(sum(one) for one, _, _ in turns)
    split = median(sum(two) - sum(one) for one, two, _ in turns) / median(one[1] for one, _, _ in turns)
    remote_extra = median(three - sum(one) for one, _, three in turns) / plain
    return Ratios(max(0.0, split), max(0.0, remote_extra))
