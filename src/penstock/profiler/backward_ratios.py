"""How much longer a model takes if its backwards are in two jobs, or elsewhere than their forwards: found by trying.

The model is run as one stage in this process, in turns: plainly, with weight gradients put off, and with what is
saved handed over as it would be to another rank (`shipping.py`), but without the message. Counted is processor time.
"""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch
from torch import nn

from penstock.model import find_blocks, keep_freed_memory, rows_of, tensors_of, undone
from penstock.runtime.remote_backward import Shipping
from penstock.runtime.stage import Job, TorchStage
from penstock.runtime.tensors import Rows, pack

FEWEST_TURNS, MOST_TURNS, ENOUGH_S = 5, 41, 8.0
"""So many turns at least and at most, and between these as long as there is time."""


class Ratios(NamedTuple):
    """What each takes more, as a part of what it takes plainly."""

    split: float
    """I and W against one backward. That the forward then takes longer counts as well."""
    moved: float
    """Forward and backward on different devices against both on one."""


def measure_ratios(
    model: nn.Module, inputs: Any, loss: Callable[..., Any], targets: Any, blocks: Sequence[str] | None
) -> Ratios:
    """Both, for a model on the processor, which is left as it was."""
    keep_freed_memory()
    with undone(model):
        runner = TorchStage(
            find_blocks(model, blocks, inputs), 0, model, seed=0, is_split=False, device=torch.device("cpu")
        )
        given, rows, shipping = pack(inputs)[0], Rows(0, rows_of(inputs)), Shipping()

        def finish(carry: Any) -> Any:
            return loss(carry) if targets is None else loss(carry, targets)

        job = Job(0, 0, rows, finish, False, None, tensors_of(inputs))

        def here(*, defer: bool) -> tuple[float, float]:
            began = process_time()
            _, graph = runner.run(given, 0, rows, finish, keep=True, defer=defer)
            forward = process_time()
            runner.backward(graph, graph.ones)
            runner.weights(graph)
            return forward - began, process_time() - forward

        def elsewhere() -> float:
            began = process_time()
            if shipping.reason(runner, given, job):
                runner.run(given, 0, rows, finish, keep=False, defer=False)
                graph = runner.run_again(given, 0, rows, finish, defer=False)
            else:
                _, message = shipping.run(runner, given, job, "trying")
                graph = shipping.graph(runner, message, job, given)
                del message
            runner.backward(graph, graph.ones)
            return process_time() - began

        turns: list[tuple[tuple[float, float], tuple[float, float], float]] = []
        started = perf_counter()
        while len(turns) < 1 + FEWEST_TURNS or (len(turns) < MOST_TURNS and perf_counter() - started < ENOUGH_S):
            turns.append((here(defer=False), here(defer=True), elsewhere()))
    # The first turn also finds out how to do it.
    del turns[0]
    plain = median(sum(one) for one, _, _ in turns)
    split = median(sum(two) - sum(one) for one, two, _ in turns) / median(one[1] for one, _, _ in turns)
    moved = median(three - sum(one) for one, _, three in turns) / plain
    return Ratios(max(0.0, split), max(0.0, moved))
