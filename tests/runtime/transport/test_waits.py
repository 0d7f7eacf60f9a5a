"""Deadlines of a transport, objects in two messages, and receives that are posted in order."""

import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from penstock.dist import Describe
from penstock.errors import MismatchError, PeerLost
from penstock.runtime.tensors import pack
from penstock.runtime.transport.process_groups import OrderedLink, ProcessGroups
from penstock.runtime.transport.transport import TorchTransport, TransportHooks

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = torch.device("cpu")


class Done:
    """Completed work."""

    def wait(self, _limit: timedelta | None = None) -> None:
        pass

    def is_completed(self) -> bool:
        return True


class Group:
    """A process group that records sends, and fills receives from a list."""

    def __init__(self, error: str = "") -> None:
        self.sent: list[Tensor] = []
        self.incoming: list[Tensor] = []
        self.received: list[tuple[int, int]] = []
        self._error = error

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Done:
        if self._error:
            raise RuntimeError(self._error)
        self.sent += [tensor.clone() for tensor in tensors]
        return Done()

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Done:
        if self._error:
            raise RuntimeError(self._error)
        self.received.append((peer, tag))
        for tensor in tensors:
            tensor.copy_(self.incoming.pop(0))
        return Done()


class Limits:
    """Records the deadline and the description of every wait."""

    def __init__(self) -> None:
        self.waits: list[tuple[float, str]] = []
        self.during: Callable[[], Any] = lambda: None

    def wait(self, _work: Any, timeout_s: float, describe: Describe) -> None:
        self.waits.append((timeout_s, describe()))
        self.during()


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Group:
    """The control group of rank 0."""
    monkeypatch.setattr(dist, "get_rank", lambda _group: 0)
    return Group()


def transport_of(control: Group, limits: Limits, link: Group | None = None) -> TorchTransport:
    links = {ends: OrderedLink(ends, link) for ends in ((0, 1), (1, 0))}
    return TorchTransport(ProcessGroups(control, links, is_in_order=True), CPU, 10.0, TransportHooks(wait=limits.wait))


def describe() -> str:
    return "a message"


def test_waits_have_their_deadline_and_their_description(control: Group, limits: Limits) -> None:
    transport = transport_of(control, limits)
    limits.during = lambda: seen.append(transport.waiting_for)
    seen: list[Describe | None] = []
    transport.wait(Done(), describe)
    transport.wait(Done(), describe, extra_s=2.5)
    transport.wait_device(Done(), describe)
    assert limits.waits == [(10.0, "a message"), (12.5, "a message"), (10.0, "a message")]
    # While it waits, and not afterwards.
    assert seen == [describe] * 3
    assert transport.waiting_for is None
    transport.close()


def test_an_object_is_sent_as_its_length_and_its_bytes(control: Group, limits: Limits) -> None:
    transport = transport_of(control, limits)
    transport.send_object({"a": [1, 2]}, 1, 5, describe)
    length, body = control.sent
    assert int(length) == len(body)
    assert pickle.loads(body.numpy().tobytes()) == {"a": [1, 2]}
    control.incoming = [length, body]
    assert transport.receive_object(1, 5, describe, 3.0) == {"a": [1, 2]}
    assert control.received == [(1, 5), (1, 5)]
    # Both of its messages may take longer.
    assert limits.waits == [(13.0, "a message")] * 2
    transport.close()


def test_the_form_is_sent_once_and_must_not_change(control: Group, limits: Limits) -> None:
    link = Group()
    transport = transport_of(control, limits, link)
    payload = pack(torch.arange(3))[0]
    for _ in range(2):
        transport.send(payload, 1, 5, "form", describe)
    assert len(control.sent) == 2  # length and body of the form
    assert len(link.sent) == 2
    with pytest.raises(MismatchError, match="a message: expected a tensor of shape"):
        transport.send(pack(torch.arange(4))[0], 1, 5, "form", describe)
    # Another batch, peer, or tag has a form of its own.
    transport.send(pack(torch.arange(4))[0], 1, 5, "other form", describe)
    transport.send(pack(torch.arange(5))[0], 1, 6, "form", describe)
    assert len(control.sent) == 6
    transport.close()


def test_receives_are_posted_in_the_order_of_the_link(control: Group, limits: Limits) -> None:
    link = Group()
    transport = transport_of(control, limits, link)
    sender = transport_of(Group(), limits, link)
    for tag, size in ((1, 2), (2, 3), (1, 2)):
        sender.send(pack(torch.full((size,), tag))[0], 1, tag, "form", describe)
    messages = [item.clone() for item in link.sent]
    control.incoming = [item.clone() for item in sender._groups.control.sent]
    checked: list[str] = []
    transport.peer_checks[1] = lambda waiting: checked.append(f"{waiting and waiting()} {len(link.received)}")
    link.incoming = [*messages]
    # Nothing is received before the batches are known to agree.
    received = []
    for tag in (1, 2, 1):
        received.append(transport.irecv(1, tag, "form", lambda tag=tag: f"tag {tag}"))  # type: ignore[misc]
        # In the order of the program, whether its form was known or not, and whichever is needed first.
        assert received[-1].is_posted
        assert len(link.received) == len(received)
    assert checked == ["tag 1 0"]
    one, two, three = received
    assert three.wait().tensors[0].tolist() == [1, 1]
    assert one.wait().tensors[0].tolist() == [1, 1]
    assert two.wait().tensors[0].tolist() == [2, 2, 2]
    assert transport.peer_checks == {}
    # Now that all forms are known, a receive is posted at once.
    link.incoming = [messages[1]]
    assert transport.irecv(1, 2, "form", describe).is_posted
    for item in (transport, sender):
        item.close()


def test_errors_of_the_network_are_translated(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
    monkeypatch.setattr(dist, "get_rank", lambda _group: 0)
    transport = transport_of(Group("Connection reset"), limits)
    with pytest.raises(PeerLost, match="a message: the connection is lost"):
        transport.send_object(1, 1, 5, describe)
    with pytest.raises(PeerLost, match="a message: the connection is lost"):
        transport.irecv_tensor(torch.zeros(1), 1, 5, describe)
    # An error of an earlier send is raised by the next message.
    transport.send_queue.note_error(PeerLost("earlier"))
    for call in (
        transport.flush,
        lambda: transport.send(pack(torch.zeros(1))[0], 1, 5, "form", describe),
        lambda: transport.irecv(1, 5, "form", describe),
        transport.close,
    ):
        with pytest.raises(PeerLost, match="earlier"):
            call()
