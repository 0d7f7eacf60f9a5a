"""Instrumentation of one stage: which of its calls are intercepted, and how.

Interception costs more than small calls do, so it is used only where needed. Torch functions are intercepted
(`function_mode.py`) if the stage draws random numbers, if batch norm covers the rows of several ranks, or if weight
gradients are deferred that weight-gradient hooks (`wgrad_hooks.py`) do not cover. The first forward of the stage shows
which of these apply. The caller wraps every iteration in `rng.forbid_untracked_draws`, which finds a stage that draws
only later. A weight gradient that first appears later is computed with the input gradient, not deferred.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from penstock.runtime.rng import RowRng
from penstock.runtime.stage.function_mode import StageFunctionMode
from penstock.runtime.stage.graph import Graph
from penstock.runtime.stage.replica_sync import ReplicaSync
from penstock.runtime.stage.wgrad_functions import Defer
from penstock.runtime.stage.wgrad_hooks import WeightGradHooks
from penstock.runtime.stage.wgrad_queue import WeightGradQueue
from penstock.runtime.tensors import Rows

EnterLayer: TypeAlias = Callable[[int], None]

NULL_CONTEXT: AbstractContextManager[None] = nullcontext()


class Instrumentation:
    """Chooses and installs the interception of one stage's forwards and backwards."""

    def __init__(
        self,
        model: nn.Module,
        parameters: Iterable[Tensor],
        *,
        seed: int,
        is_split: bool,
        device: torch.device,
        replica_sync: ReplicaSync | None,
    ) -> None:
        self.seed = seed
        self._is_split = is_split
        self._device = device
        self._replica_sync = replica_sync
        self._modules = list(model.modules())
        self._hooks = WeightGradHooks(model.named_modules(), parameters)
        self._draws: dict[bytes, bool] = {}
        """Whether the stage may draw random numbers, by the training flags of the modules seen so far."""
        self._defers_more: dict[bytes, bool] = {}
        """Likewise, whether the stage defers weight gradients that hooks do not cover."""
        self._training = b""
        self.begin_iteration()

    def begin_iteration(self) -> None:
        """Read the training flags of all modules. Doing so before every action would take too long."""
        self._training = bytes([module.training for module in self._modules])

    def at_forward(self, graph: Graph, step: int, rows: Rows) -> AbstractContextManager[EnterLayer | None]:
        """Context of a forward. It gives a function to call before each layer, or None if none is needed."""
        return self._intercept(graph, step, rows) if self._must_intercept(graph.queue) else self._hook(graph.queue)

    def at_backward(self, graph: Graph) -> AbstractContextManager[None]:
        """Context of a backward, in which layers may recompute themselves (`torch.utils.checkpoint`)."""
        if graph.rng is None or not self._must_intercept(graph.queue):
            return self._hook(graph.queue)
        return self._intercept_recompute(graph.rng, graph.queue)

    def _must_intercept(self, queue: WeightGradQueue | None) -> bool:
        is_plain = self._replica_sync is None and self._draws.get(self._training) is False
        return not is_plain or self._defer(queue) is not None

    def _defer(self, queue: WeightGradQueue | None) -> Defer | None:
        """The receiver of weight gradients that hooks do not cover, if there may be any."""
        return queue.defer if queue is not None and self._defers_more.get(self._training, True) else None

    def _hook(self, queue: WeightGradQueue | None) -> AbstractContextManager[None]:
        return NULL_CONTEXT if queue is None else self._hooks.install(queue.defer)

    def _function_mode(self, rng: RowRng, queue: WeightGradQueue | None) -> StageFunctionMode:
        all_reduce = None if self._replica_sync is None else self._replica_sync.all_reduce
        return StageFunctionMode(rng, self._defer(queue), all_reduce)

    @contextmanager
    def _intercept(self, graph: Graph, step: int, rows: Rows) -> Iterator[EnterLayer]:
        draws, queue = self._draws.get(self._training), graph.queue
        rng = graph.rng = RowRng(self.seed, step, rows, is_split=self._is_split, device=self._device)
        with rng.preserve_state(), self._function_mode(rng, queue) as mode, self._hook(queue):
            yield partial(rng.enter_layer, track=draws is None)
            rng.leave_layer()
        self._draws.setdefault(self._training, rng.may_draw)
        if queue is not None:
            self._defers_more.setdefault(self._training, mode.has_deferred)

    @contextmanager
    def _intercept_recompute(self, rng: RowRng, queue: WeightGradQueue | None) -> Iterator[None]:
        with self._function_mode(rng, queue), self._hook(queue):
            yield
