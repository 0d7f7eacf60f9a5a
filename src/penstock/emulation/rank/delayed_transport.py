"""The transport of an emulation: messages are delayed by the latency of their link.

The kernel's shapers emulate bandwidth only. Delaying every message of a link by the same time has the effect of
latency: messages follow each other as closely as before, and arrive that much later.
"""

import heapq
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from penstock.dist import Describe, wait_for
from penstock.emulation.rank.scratch import Scratch
from penstock.errors import RunError
from penstock.runtime.transport import ProcessGroups, SendTensors, TorchTransport, TransportHooks

CALL_S = 3e-4
"""A wait for a message that has arrived already takes no longer than this."""


class DelayLine:
    """Delays sends by the latency of their link. A thread starts them when they are due.

    Args:
        latency_s: By peer: seconds by which sends are delayed.
    """

    def __init__(self, latency_s: Mapping[int, float]) -> None:
        self._latency_s = {peer: seconds for peer, seconds in latency_s.items() if seconds > 0}
        self._held: list[tuple[float, int, Callable[[], None]]] = []
        self._num_held = 0
        self._changed = threading.Condition()
        if self._latency_s:
            threading.Thread(target=self._release, name="penstock-delay-line", daemon=True).start()

    def wrap(self, send_now: SendTensors, note_error: Callable[[RunError], None]) -> SendTensors:
        """Return a function that sends with delay, given one that sends at once and one that records errors."""

        def send_later(tensors: Sequence[Tensor], peer: int, tag: int, describe: Describe) -> None:
            latency_s = self._latency_s.get(peer, 0.0)
            if latency_s:
                self._hold(latency_s, partial(_send_noted, send_now, note_error, tensors, peer, tag, describe))
            else:
                send_now(tensors, peer, tag, describe)

        return send_later

    def _hold(self, latency_s: float, send: Callable[[], None]) -> None:
        with self._changed:
            self._num_held += 1
            heapq.heappush(self._held, (time.perf_counter() + latency_s, self._num_held, send))
            self._changed.notify_all()

    def drain(self, timeout_s: float) -> None:
        """Block until all sends have started."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held, timeout_s)

    def _release(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._held))
                due_s = self._held[0][0]
                if due_s > time.perf_counter():
                    # A send that is due earlier may be added meanwhile.
                    self._changed.wait(max(0.0, due_s - time.perf_counter()))
                    continue
                heapq.heappop(self._held)[2]()
                self._changed.notify_all()


def _send_noted(
    send_now: SendTensors,
    note_error: Callable[[RunError], None],
    tensors: Sequence[Tensor],
    peer: int,
    tag: int,
    describe: Describe,
) -> None:
    try:
        send_now(tensors, peer, tag, describe)
    except RunError as error:
        note_error(error)


class WaitTimer:
    """Records when the rank last had to wait for a message."""

    def __init__(self) -> None:
        self.waited_until_s = 0.0
        """End of the last wait that blocked."""

    def wait(self, work: Any, timeout_s: float, describe: Describe) -> None:
        """Block until a work handle has completed."""
        began_s = time.perf_counter()
        wait_for(work, timeout_s, describe)
        ended_s = time.perf_counter()
        if ended_s - began_s > CALL_S:
            self.waited_until_s = ended_s


def open_delayed_transport(
    group: Any, timeout_s: float, delays: DelayLine, timer: WaitTimer, scratch: Scratch
) -> TorchTransport:
    """Return a transport over gloo with delayed sends, timed waits, and receive buffers in scratch memory."""
    hooks = TransportHooks(send=delays.wrap, wait=timer.wait, allocate=partial(_allocate, scratch))
    return TorchTransport(ProcessGroups(group), torch.device("cpu"), timeout_s, hooks)


def _allocate(scratch: Scratch, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    buffer = scratch.like(shape, stride, dtype)
    return torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype) if buffer is None else buffer
