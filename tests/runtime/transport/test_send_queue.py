"""Sends in progress: what is kept alive and until when, and what becomes of errors."""

import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from penstock.errors import InputError, PeerLost, RuntimeTimeout
from penstock.runtime.transport.process_groups import OrderedLink, PolledWork, ProcessGroups, select_backend
from penstock.runtime.transport.send_queue import MAX_SMALL, SMALL_BYTES, SendQueue

LIMIT_S = 60.0
TIMEOUT_S = 7.0


class Work:
    """A send that completes when it is told to."""

    def __init__(self, error: str = "") -> None:
        self._done = threading.Event()
        self._error = error
        self.waited_for = threading.Event()
        self.limit: timedelta | None = None

    def complete(self) -> None:
        self._done.set()

    def wait(self, limit: timedelta) -> None:
        self.limit = limit
        self.waited_for.set()
        assert self._done.wait(LIMIT_S)
        if self._error:
            raise RuntimeError(self._error)


@pytest.fixture
def queue() -> Iterator[SendQueue]:
    made = SendQueue(TIMEOUT_S)
    yield made
    made._errors.clear()
    made.close()


def small() -> Tensor:
    return torch.zeros(SMALL_BYTES, dtype=torch.uint8)


def large() -> Tensor:
    return torch.zeros(SMALL_BYTES + 1, dtype=torch.uint8)


def describe() -> str:
    return "a send"


def test_a_large_send_is_waited_for_at_once_and_a_small_one_later(queue: SendQueue) -> None:
    one, other = Work(), Work()
    queue.add(one, small(), describe)
    queue.add(other, large(), describe)
    assert other.waited_for.wait(LIMIT_S)
    assert other.limit == timedelta(seconds=TIMEOUT_S)
    other.complete()
    assert not one.waited_for.is_set()
    queue.hand_over()
    assert one.waited_for.wait(LIMIT_S)
    one.complete()
    assert queue._small == []


def test_many_small_sends_are_handed_over(queue: SendQueue) -> None:
    works = [Work() for _ in range(MAX_SMALL)]
    for work in works[:-1]:
        work.complete()
        queue.add(work, small()[:1], describe)
    assert len(queue._small) == MAX_SMALL - 1
    works[-1].complete()
    queue.add(works[-1], small()[:1], describe)
    assert queue._small == []
    assert all(work.waited_for.wait(LIMIT_S) for work in works)


@pytest.mark.parametrize("is_large", [False, True])
def test_a_tensor_lives_until_its_send_has_completed(queue: SendQueue, is_large: bool) -> None:
    work, tensor = Work(), large() if is_large else small()
    released = threading.Event()
    weakref.finalize(tensor, released.set)
    queue.add(work, tensor, describe)
    del tensor
    queue.hand_over()
    assert work.waited_for.wait(LIMIT_S)
    assert not released.is_set()
    work.complete()
    assert released.wait(LIMIT_S)


def test_the_first_error_is_raised_again_and_again(queue: SendQueue) -> None:
    for number, text in enumerate(("Timed out", "Connection reset")):
        work = Work(text)
        work.complete()
        queue.add(work, large(), lambda number=number: f"send {number}")  # type: ignore[misc]
    last = Work()
    last.complete()
    queue.add(last, large(), describe)
    # A send that fails does not end the thread.
    assert last.waited_for.wait(LIMIT_S)
    for _ in range(2):
        with pytest.raises(RuntimeTimeout, match="send 0: timed out after 7 s"):
            queue.check()
    queue._errors.clear()
    queue.check()
    queue.note_error(PeerLost("later"))
    with pytest.raises(PeerLost, match="later"):
        queue.check()


def test_closing_waits_for_all_sends_and_raises_their_errors() -> None:
    queue, works = SendQueue(LIMIT_S), [Work(), Work("Connection reset")]
    for work in works:
        queue.add(work, small(), describe)
        threading.Timer(0.1, work.complete).start()
    with pytest.raises(PeerLost, match="a send: the connection is lost"):
        queue.close()
    assert all(work.waited_for.is_set() for work in works)
    assert not queue._thread.is_alive()


def test_closing_has_a_limit() -> None:
    queue, work = SendQueue(0.1), Work()
    queue.add(work, large(), describe)
    queue.close()
    assert queue._thread.is_alive()
    work.complete()
    queue._thread.join(LIMIT_S)


def test_abandoned_sends_are_kept_by_the_thread() -> None:
    queue, work = SendQueue(LIMIT_S), Work()
    queue.add(work, small(), describe)
    queue.abandon()  # does not wait
    assert work.waited_for.wait(LIMIT_S)
    assert queue._thread.is_alive()
    work.complete()
    queue._thread.join(LIMIT_S)
    assert not queue._thread.is_alive()
    queue._exit()
    queue.close()


EXIT = """
import threading, time
import torch
from penstock.runtime.transport.send_queue import SendQueue
class Work:
    def wait(self, limit):
        time.sleep({seconds})
        print("sent", flush=True)
queue = SendQueue(30.0)
queue.add(Work(), torch.zeros(4), lambda: "a send")
if {is_abandoned}:
    queue.abandon()
    time.sleep(0.2)
"""


@pytest.mark.parametrize(
    ("seconds", "is_abandoned", "code", "out"),
    [(0.3, False, 0, "sent\n"), (0.0, True, 0, "sent\n"), (600.0, True, 1, "")],
)
def test_a_process_exits_when_its_sends_have_arrived_or_the_run_has_failed(
    seconds: float, is_abandoned: bool, code: int, out: str
) -> None:
    command = [sys.executable, "-c", EXIT.format(seconds=seconds, is_abandoned=is_abandoned)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout) == (code, out), done.stderr


class Polled:
    """Work that is complete after some polls."""

    def __init__(self, num_polls: float, error: str = "") -> None:
        self.num_polls, self.error, self.num_waits = num_polls, error, 0

    def is_completed(self) -> bool:
        self.num_polls -= 1
        return self.num_polls < 0

    def wait(self) -> None:
        self.num_waits += 1
        if self.error:
            raise RuntimeError(self.error)


def test_polled_work_keeps_its_deadline_and_its_error() -> None:
    work = Polled(3)
    PolledWork(work).wait(timedelta(seconds=LIMIT_S))
    assert (work.num_polls, work.num_waits) == (-1, 1)
    with pytest.raises(RuntimeError, match="reset"):
        PolledWork(Polled(0, "reset")).wait(timedelta(seconds=LIMIT_S))
    endless = Polled(float("inf"))
    with pytest.raises(RuntimeError, match="timed out"):
        PolledWork(endless, 1e-3).wait(timedelta(seconds=0.05))
    assert endless.num_waits == 0
    # What is complete already is not late.
    PolledWork(Polled(0)).wait(timedelta(seconds=-1))


class TwoRanks:
    """The group of a link, which records its messages."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Tensor], int]] = []

    def send(self, tensors: list[Tensor], peer: int, _tag: int) -> Polled:
        self.calls.append(("send", tensors, peer))
        return Polled(0)

    def recv(self, tensors: list[Tensor], peer: int, _tag: int) -> Polled:
        self.calls.append(("recv", tensors, peer))
        return Polled(0)


def test_ordered_links_send_bytes_between_two_ranks() -> None:
    group, tensor = TwoRanks(), torch.ones(3, dtype=torch.bfloat16)
    OrderedLink((7, 4), group).send([tensor], 4, 99).wait(timedelta(seconds=LIMIT_S))
    OrderedLink((7, 4), group).recv([tensor], 7, 99).wait(timedelta(seconds=LIMIT_S))
    assert [(name, peer) for name, _, peer in group.calls] == [("send", 0), ("recv", 1)]
    for _, (sent,), _ in group.calls:
        assert (sent.dtype, sent.numel(), sent.data_ptr()) == (torch.uint8, 6, tensor.data_ptr())


def test_groups_of_messages() -> None:
    tagged = ProcessGroups("control")
    assert tagged.p2p_group(0, 1) == "control"
    work = Polled(0)
    assert tagged.with_deadline(work) is work
    link = OrderedLink((0, 1), None)
    ordered = ProcessGroups("control", {(0, 1): link}, is_in_order=True)
    assert ordered.p2p_group(0, 1) is link
    assert isinstance(ordered.with_deadline(work), PolledWork)


@pytest.mark.parametrize(
    ("config", "device", "backend"),
    [
        ("cpu:gloo", "cpu", "gloo"),
        ("cpu:gloo,cuda:nccl", "cuda", "nccl"),
        ("cpu:gloo,cuda:gloo", "cpu", "gloo"),
        ("cpu:gloo,cuda:gloo", "cuda", None),  # gloo copies through host memory
        ("cpu:gloo", "cuda", None),
        ("cuda:nccl", "cpu", None),
    ],
)
def test_the_backend_of_a_device(
    monkeypatch: pytest.MonkeyPatch, config: str, device: str, backend: str | None
) -> None:
    monkeypatch.setattr(dist, "get_backend_config", lambda: config)
    if backend is not None:
        assert select_backend(torch.device(device)) == backend
        return
    with pytest.raises(InputError, match="which does not send from that device") as caught:
        select_backend(torch.device(device))
    assert {"cpu": "gloo", "cuda": "nccl"}[device] in caught.value.hint
