"""The executor of an emulation: the real one, but for what reductions and moved backwards carry."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from penstock.dist import Tell, failure
from penstock.emulation.clock import DeviceClock
from penstock.emulation.rank.sleeping_stage import SleepingShipping
from penstock.program import Action, Kind
from penstock.runtime.executor import Executor, Iteration, Reduction
from penstock.runtime.transport import Mail


@dataclass(frozen=True)
class Summed:
    """What a reduction adds up, with whom, and how long its messages would be under way for latency alone."""

    group: Any
    numbers: Tensor
    hold_s: float


class EmulatedReduction(Reduction):
    """A sum of the right size. It begins later by the latencies that its messages would have had."""

    def __init__(self, summed: Summed, tell: Tell) -> None:
        super().__init__((), summed.group, tell)
        self._summed = summed
        self._work: Future[Any] = Future()
        if summed.hold_s:
            threading.Thread(target=self._begin, name="penstock-sum", daemon=True).start()
        else:
            self._begin()

    def _begin(self) -> None:
        time.sleep(self._summed.hold_s)
        try:
            self._work.set_result(dist.all_reduce(self._summed.numbers, group=self._summed.group, async_op=True))
        except RuntimeError as error:
            self._work.set_exception(failure(error, self._tell))

    def finish(self, mail: Mail, before: Mapping[nn.Parameter, Tensor]) -> None:  # noqa: ARG002
        """Wait."""
        mail.wait(self._work.result(), self._tell)
        self.ended_s = perf_counter()


class EmulatedExecutor(Executor):
    """Does the actions of one rank; `summed` are its reductions, by whether they are of a tie, and their number.

    Jobs take place in the time of `clock`.
    """

    def __init__(self, *given: Any, summed: Mapping[tuple[bool, int], Summed], clock: DeviceClock) -> None:
        super().__init__(*given)
        self._shipping = SleepingShipping()
        self._summed = summed
        self._clock = clock
        self._slept_s: dict[Action, tuple[float, float]] = {}
        self._jobs = [
            (partial(self._sleep, do) if do is not None and action.kind <= Kind.STEP else do, action)
            for do, action in self._jobs
        ]

    def spans_s(self) -> list[tuple[float, float]]:
        """As of any executor, but of jobs when their device had them."""
        spans_s = zip(super().spans_s(), self._jobs, strict=True)
        return [self._slept_s.get(action, span_s) for span_s, (_, action) in spans_s]

    def _sleep(self, do: Callable[[Iteration, Action], None], iteration: Iteration, action: Action) -> None:
        do(iteration, action)
        span_s = self._clock.take_span(self._began_s)
        if span_s is not None:
            self._slept_s[action] = span_s

    def _reduce(self, iteration: Iteration, action: Action) -> None:
        told = partial(self._addresses.tell, action, iteration.step)
        found = self._summed[action.kind == Kind.REDUCE_TIE, action.stage]
        self._reductions[action] = EmulatedReduction(found, told)
