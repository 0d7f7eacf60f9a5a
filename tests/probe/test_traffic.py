"""Messages of a measurement between two ranks that are threads, with tags as over gloo and in order as over nccl."""

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
import torch.distributed as dist

from penstock.probe import traffic as traffic_module
from penstock.probe.traffic import REPORT_TAG, TAG, Traffic

if TYPE_CHECKING:
    from penstock.probe.rank_group import Group

LIMIT_S = 30.0


class Wires:
    """Sends and receives of threads, matched by sender, receiver and tag. Each thread knows its rank."""

    def __init__(self) -> None:
        self.messages: defaultdict[tuple[int, int, int], queue.Queue[Any]] = defaultdict(queue.Queue)
        self.lock = threading.Lock()
        self.own = threading.local()
        self.sent: list[tuple[int, int, int]] = []
        """Receiver, bytes, tag."""
        self.limit: timedelta | None = timedelta(seconds=LIMIT_S)
        """What every wait must be given."""

    def _queue(self, source: int, target: int, tag: int) -> "queue.Queue[Any]":
        with self.lock:
            return self.messages[source, target, tag]

    def isend(self, tensor: torch.Tensor, peer: int, *, tag: int = 0) -> SimpleNamespace:
        self.sent.append((peer, tensor.nbytes, tag))
        self._queue(self.own.rank, peer, tag).put(tensor.clone())
        return SimpleNamespace(wait=self._check_limit)

    def irecv(self, tensor: torch.Tensor, peer: int, *, tag: int = 0) -> SimpleNamespace:
        source = self._queue(peer, self.own.rank, tag)

        def wait(limit: timedelta | None = None) -> None:
            self._check_limit(limit)
            message = source.get(timeout=LIMIT_S)
            assert (message.shape, message.dtype) == (tensor.shape, tensor.dtype)
            tensor.copy_(message)

        return SimpleNamespace(wait=wait)

    def _check_limit(self, limit: timedelta | None = None) -> None:
        assert limit == self.limit


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Wires:
    made = Wires()
    monkeypatch.setattr(dist, "isend", made.isend)
    monkeypatch.setattr(dist, "irecv", made.irecv)
    return made


def traffic_of(wires: Wires, backend: str, rank: int) -> Traffic:
    @contextmanager
    def translate_errors(_peer: int, what: str) -> Iterator[None]:
        assert what in ("sending to", "receiving from")
        yield

    wires.own.rank = rank
    group = SimpleNamespace(
        device=torch.device("cpu"), backend=backend, timeout_s=LIMIT_S, translate_errors=translate_errors
    )
    return Traffic(cast("Group", group))


def serve_on_thread(wires: Wires, backend: str, serve: Callable[[Traffic], None]) -> tuple[threading.Thread, list[Any]]:
    """Run rank 1 on a thread. The list gets its number of bytes sent, or its error."""
    outcome: list[Any] = []

    def run() -> None:
        traffic = traffic_of(wires, backend, 1)
        try:
            serve(traffic)
            outcome.append(traffic.num_sent)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def test_the_streams_of_accelerators_wait_and_not_the_host(wires: Wires, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_wait(_device: torch.device) -> None:
        raise AssertionError("the host waits for the device")

    monkeypatch.setattr(traffic_module, "is_accelerator", lambda _device: True)
    monkeypatch.setattr(traffic_module, "synchronize", no_wait)
    wires.limit = None
    thread, outcome = serve_on_thread(wires, "nccl", lambda traffic: traffic.serve(0))
    traffic = traffic_of(wires, "nccl", 0)
    assert len(traffic.ping(1, 5)) == 5
    assert traffic.train(1, 8, 64, 3) >= 0
    traffic.finish(1)
    thread.join(LIMIT_S)
    assert isinstance(outcome[0], int)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_requests_are_served_until_the_end(wires: Wires, backend: str) -> None:
    thread, outcome = serve_on_thread(wires, backend, lambda traffic: traffic.serve(0))
    traffic = traffic_of(wires, backend, 0)
    latencies_s = traffic.ping(1, 5)
    assert len(latencies_s) == 5
    assert all(0 <= seconds < LIMIT_S for seconds in latencies_s)
    # Larger than the buffer of a new Traffic, and smaller.
    assert 0 <= traffic.train(1, 200_000, 100_000, 3) < LIMIT_S
    assert 0 <= traffic.train(1, 10, 20, 1) < LIMIT_S
    traffic.finish(1)
    thread.join(LIMIT_S)
    requests, pings, trains = 4 * 32, 5 * 8, 200_000 + 3 * 100_000 + 10 + 20
    assert traffic.num_sent == requests + pings + trains
    # It replies to each request and ping, and with the time of each train.
    assert outcome == [4 * 8 + pings + 2 * 8]
    assert sum(num_bytes for _, num_bytes, _ in wires.sent) == traffic.num_sent + outcome[0]
    trained = [(num_bytes, tag) for peer, num_bytes, tag in wires.sent if num_bytes in (10, 20, 100_000, 200_000)]
    tag = TAG if backend == "gloo" else 0
    assert trained == [(200_000, tag), *[(100_000, tag)] * 3, (10, tag), (20, tag)]
    assert {tag for _, num_bytes, tag in wires.sent if num_bytes in (8, 32)} == {REPORT_TAG if backend == "gloo" else 0}
    assert all(messages.empty() for messages in wires.messages.values())


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_the_time_of_a_train_is_that_after_its_first_message(
    wires: Wires, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(traffic: Traffic) -> None:
        wait = traffic.wait_arrivals
        monkeypatch.setattr(
            traffic, "wait_arrivals", lambda posted: [10.0 + 0.5 * n for n, _ in enumerate(wait(posted))]
        )
        traffic.serve(0)

    thread, _ = serve_on_thread(wires, backend, serve)
    traffic = traffic_of(wires, backend, 0)
    assert traffic.train(1, 64, 32, 4) == 2.0
    traffic.finish(1)
    thread.join(LIMIT_S)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_messages_to_several_peers(wires: Wires, backend: str) -> None:
    def receive(traffic: Traffic) -> None:
        posted = traffic.post_receives(0, [300_000] * 3)
        arrived_s = traffic.wait_arrivals(posted)
        assert len(arrived_s) == 3
        assert arrived_s == sorted(arrived_s)

    thread, outcome = serve_on_thread(wires, backend, receive)
    traffic = traffic_of(wires, backend, 0)
    traffic.send_all([(1, 300_000, 3), (2, 100, 2)])
    thread.join(LIMIT_S)
    assert outcome == [0]
    assert traffic.num_sent == 900_200
    assert [(peer, num_bytes) for peer, num_bytes, _ in wires.sent] == [(1, 300_000)] * 3 + [(2, 100)] * 2
