"""Delayed sends: when they start, in which order, and what becomes of their errors."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from penstock.emulation.rank import delayed_transport as module
from penstock.emulation.rank.delayed_transport import DelayLine, WaitTimer, _allocate
from penstock.emulation.rank.scratch import Scratch, largest_payload
from penstock.errors import PeerLost, RunError, RuntimeTimeout
from tests.support.small_emulation import small

DEADLINE_S = 60.0


class Sends:
    """Records which sends have started, and when. Peer 9 is lost."""

    def __init__(self, latency_s: dict[int, float]) -> None:
        self.line = DelayLine(latency_s)
        self.started: list[tuple[int, int, float]] = []
        """Peer, tag, and time."""
        self.errors: list[RunError] = []
        self._send = self.line.wrap(self._send_now, self.errors.append)

    def _send_now(self, tensors: Any, peer: int, tag: int, describe: Callable[[], str]) -> None:
        assert [tensor.tolist() for tensor in tensors] == [[float(tag)]]
        if peer == 9:
            raise PeerLost(describe())
        self.started.append((peer, tag, time.perf_counter()))

    def send(self, peer: int, tag: int) -> float:
        """Send, and return the time before."""
        now_s = time.perf_counter()
        self._send([torch.tensor([float(tag)])], peer, tag, lambda: f"to {peer}")
        return now_s

    @property
    def order(self) -> list[tuple[int, int]]:
        return [(peer, tag) for peer, tag, _ in self.started]


def test_sends_without_latency_start_at_once() -> None:
    sends = Sends({0: 0.0, 1: 30.0})
    sends.send(0, 1)
    sends.send(2, 2)  # a link that is not listed has no latency
    assert sends.order == [(0, 1), (2, 2)]
    with pytest.raises(PeerLost, match="to 9"):
        sends.send(9, 3)
    assert sends.errors == []


def test_without_any_latency_there_is_no_thread() -> None:
    before = threading.active_count()
    Sends({0: 0.0, 1: 0.0})
    assert threading.active_count() == before


def test_every_send_starts_late_by_the_latency_of_its_link() -> None:
    latency_s = {1: 0.2, 2: 0.02}
    for _ in range(10):
        sends = Sends(latency_s)
        began = [sends.send(1, 0), sends.send(1, 1), sends.send(2, 2)]
        is_quick = began[-1] - began[0] < 0.1
        sends.line.drain(DEADLINE_S)
        started_s = {tag: at_s for _, tag, at_s in sends.started}
        for tag, peer in enumerate((1, 1, 2)):
            assert started_s[tag] >= began[tag] + latency_s[peer]
        if is_quick:
            # A send that is due earlier overtakes; those of one link keep their order.
            assert sends.order == [(2, 2), (1, 0), (1, 1)]
            return
    pytest.skip("this machine is too busy to send twice within 0.1 s")


def test_sends_that_are_due_together_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])
    sends = Sends({1: 0.05, 2: 0.05})
    for tag in range(20):
        sends.send(1 + tag % 2, tag)
    assert sends.order == []
    now_s[0] = 101.0
    sends.line.drain(DEADLINE_S)
    assert [tag for _, tag in sends.order] == list(range(20))


def test_draining_waits_for_the_last_send_or_its_limit() -> None:
    sends = Sends({1: 0.1, 2: 1000.0})
    sends.line.drain(0.0)
    sends.send(1, 0)
    sends.line.drain(DEADLINE_S)
    assert sends.order == [(1, 0)]
    sends.send(2, 1)
    began_s = time.perf_counter()
    sends.line.drain(0.05)
    assert time.perf_counter() - began_s >= 0.05
    assert sends.order == [(1, 0)]


def test_a_delayed_send_that_fails_is_noted_and_later_ones_go_on() -> None:
    sends = Sends({1: 0.02, 9: 0.01})
    sends.send(9, 0)
    sends.send(1, 1)
    sends.line.drain(DEADLINE_S)
    assert [str(error) for error in sends.errors] == ["to 9"]
    assert sends.order == [(1, 1)]


class _Work:
    """A work handle that takes a time, or fails."""

    def __init__(self, seconds: float, error: str = "") -> None:
        self._seconds, self._error = seconds, error

    def wait(self, _timeout: object) -> None:
        time.sleep(self._seconds)
        if self._error:
            raise RuntimeError(self._error)


def test_only_waits_that_block_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALL_S", 0.5)
    timer = WaitTimer()
    timer.wait(_Work(0.0), 1.0, str)
    assert timer.waited_until_s == 0.0
    monkeypatch.setattr(module, "CALL_S", 0.01)
    timer.wait(_Work(0.02), 1.0, str)
    assert 0 < timer.waited_until_s <= time.perf_counter()
    last_s = timer.waited_until_s
    monkeypatch.setattr(module, "CALL_S", 0.5)
    timer.wait(_Work(0.0), 1.0, str)
    assert timer.waited_until_s == last_s


def test_a_wait_that_fails_is_translated() -> None:
    with pytest.raises(RuntimeTimeout, match="receiving: timed out after 2 s"):
        WaitTimer().wait(_Work(0.0, "Timed out"), 2.0, lambda: "receiving")


def test_payloads_are_received_in_scratch_memory_and_the_rest_in_its_own() -> None:
    scratch = Scratch(largest_payload(small().evaluation.costs))
    address = scratch.rows(1, 1).data_ptr()
    for shape, stride, dtype, is_shared in (
        ((3, 5), (5, 1), torch.uint8, True),
        ((7,), (1,), torch.float32, True),
        ((1,), (1,), torch.float32, False),
        ((), (), torch.float32, False),
        ((3, 5), (1, 3), torch.uint8, False),
        ((3, 5), (5, 1), torch.float32, False),
        ((2, 3, 5), (15, 5, 1), torch.uint8, False),
        ((7,), (2,), torch.float32, False),
        ((7,), (1,), torch.int64, False),
    ):
        buffer = _allocate(scratch, shape, stride, dtype)
        assert (tuple(buffer.shape), buffer.stride(), buffer.dtype) == (shape, stride, dtype)
        assert (buffer.data_ptr() == address) == is_shared
