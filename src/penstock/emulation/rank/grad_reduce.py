"""Emulated gradient reductions: real all-reduces of the right size, on contents without meaning.

An all-gather stands for a reduce-scatter, too: it sends as many bytes over the same ring.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch.distributed as dist
from torch import Tensor

from penstock.dist import Describe, translate_error
from penstock.program import Action, Kind
from penstock.runtime.transport import Transport


@dataclass(frozen=True)
class EmulatedSum:
    """Process group and contents of a reduction, and the total latency of its messages in seconds.

    With `is_half` it is a reduce-scatter, or an all-gather.
    """

    group: Any
    numbers: Tensor
    latency_s: float
    is_half: bool = False

    def start(self) -> Any:
        """Start it, and return the work handle."""
        if not self.is_half:
            return dist.all_reduce(self.numbers, group=self.group, async_op=True)
        world = dist.get_world_size(self.group)
        part = -(-len(self.numbers) // world)
        whole = self.numbers if part * world == len(self.numbers) else self.numbers.new_empty(part * world)
        return dist.all_gather_into_tensor(whole, whole[:part], group=self.group, async_op=True)


class EmulatedReducer:
    """`GradReducer` of an emulation.

    Args:
        sums: By whether it is a tie, and number of the stage or tie: the reductions of this rank.
        transport: Waits for the collectives.
    """

    def __init__(self, sums: Mapping[tuple[bool, int], EmulatedSum], transport: Transport) -> None:
        self._sums = sums
        self._transport = transport

    def begin(self) -> None:
        """Start an iteration. There are no gradients of earlier ones."""

    def start(self, *, is_tie: bool, number: int, describe: Describe) -> "EmulatedReduction":
        """Start a reduction."""
        return EmulatedReduction(self._sums[is_tie, number], self._transport, describe)

    def gather(self, actions: Sequence[Action], describe: Describe) -> None:
        """Run the all-gathers of parameters among the actions of this rank."""
        stages = [action.stage for action in actions if action.kind == Kind.GATHER_P]
        for pending in [self.start(is_tie=False, number=stage, describe=describe) for stage in stages]:
            pending.finish()


class EmulatedReduction:
    """One reduction in progress. It starts later by the latency that its messages would have."""

    def __init__(self, emulated: EmulatedSum, transport: Transport, describe: Describe) -> None:
        self._emulated = emulated
        self._transport = transport
        self._describe = describe
        self.ended_s = 0.0
        self._work: Future[Any] = Future()
        if emulated.latency_s:
            threading.Thread(target=self._begin, name="penstock-reduction", daemon=True).start()
        else:
            self._begin()

    def _begin(self) -> None:
        time.sleep(self._emulated.latency_s)
        try:
            self._work.set_result(self._emulated.start())
        except RuntimeError as error:
            self._work.set_exception(translate_error(error, self._describe))

    def finish(self) -> None:
        """Block until it has completed."""
        self._transport.wait(self._work.result(), self._describe)
        self.ended_s = perf_counter()
