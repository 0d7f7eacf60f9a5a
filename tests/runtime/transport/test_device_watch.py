"""Deadlines of messages that the device waits for."""

import threading
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

import pytest

from penstock.errors import RunError, RuntimeTimeout
from penstock.runtime.transport import device_watch
from penstock.runtime.transport.device_watch import DeviceWatch
from penstock.runtime.transport.process_groups import PolledWork
from penstock.runtime.transport.send_queue import SendQueue

LIMIT_S = 0.1


class Work:
    """A message that arrives when the test says so."""

    def __init__(self) -> None:
        self.is_done = False
        self.num_orders = 0

    def is_completed(self) -> bool:
        return self.is_done

    def wait(self) -> None:
        self.num_orders += 1


@pytest.fixture
def sends() -> Iterator[SendQueue]:
    queue = SendQueue(1.0)
    yield queue
    queue.abandon()
    queue._thread.join(1.0)


@pytest.fixture
def watch(sends: SendQueue, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceWatch]:
    monkeypatch.setattr(device_watch, "STUCK_S", 0.1)
    made = DeviceWatch(LIMIT_S, sends)
    made.start()
    yield made
    made.close()


def until(condition: Any) -> bool:
    """Wait for something that happens soon."""
    end_s = monotonic() + 10
    while not condition() and monotonic() < end_s:
        sleep(0.005)
    return bool(condition())


def test_messages_that_arrive_are_forgotten(watch: DeviceWatch, sends: SendQueue) -> None:
    works = [Work() for _ in range(5)]
    for work in works:
        watch.add(work, lambda: "0F1")
    assert watch.num_pending == 5
    for work in works:
        work.is_done = True
    assert until(lambda: watch.num_pending == 0)
    sleep(2 * LIMIT_S)
    sends.check()


def test_the_next_call_of_the_transport_raises_the_error_of_an_overdue_message(
    watch: DeviceWatch, sends: SendQueue
) -> None:
    ended: list[RunError] = []
    watch.on_stuck = ended.append
    watch.add(Work(), lambda: "rank 0, 0RECV_F1")
    assert until(lambda: sends.unnoticed is not None)
    with pytest.raises(RuntimeTimeout, match=r"rank 0, 0RECV_F1: timed out after 0\.1 s"):
        sends.check()
    sleep(0.3)
    assert ended == []


def test_a_host_that_is_stuck_in_its_device_is_ended(watch: DeviceWatch, sends: SendQueue) -> None:
    is_ended = threading.Event()
    ended: list[RunError] = []

    def end(error: RunError) -> None:
        ended.append(error)
        is_ended.set()

    watch.on_stuck = end
    watch.add(Work(), lambda: "rank 0, 0RECV_F1")
    # The host makes no call meanwhile.
    assert is_ended.wait(10)
    assert "rank 0, 0RECV_F1: timed out" in ended[0].what
    sleep(0.2)
    assert len(ended) == 1


def test_an_overdue_send_counts_too(watch: DeviceWatch, sends: SendQueue) -> None:
    is_ended = threading.Event()
    watch.on_stuck = lambda _error: is_ended.set()
    done = Work()
    done.is_done = True
    watch.add(done, lambda: "")
    sends.note_error(RuntimeTimeout("rank 0, 0SEND_F1: timed out"))
    assert is_ended.wait(10)


def test_a_stream_waits_without_the_host() -> None:
    work = Work()
    polled = PolledWork(work)
    polled.order_stream()
    assert (work.num_orders, polled.is_completed()) == (1, False)
