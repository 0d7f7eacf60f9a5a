"""Messages between ranks: sent without waiting, received into buffers posted ahead, every wait with a deadline.

The first message of its kind (which stage, which micro-batch, for inputs of these shapes) is preceded by its form, so
that the receiver can make buffers; later ones must have the same form. Where messages match by their order
(`lanes.py`), one whose form is not known yet holds back those behind it; and before it is known that the peer's batch
is of the same form as ours, nothing may come from there.
"""

import pickle
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from penstock.dist import Tell, failure, wait_for
from penstock.errors import MismatchError
from penstock.runtime.tensors import Form, Packed, difference, from_form, in_memory_order
from penstock.runtime.transport.process_groups import Lanes
from penstock.runtime.transport.send_queue import Sends
from penstock.runtime.transport.shared_memory import NO_SLAB, Incoming, Outgoing, find_neighbours, is_worthwhile

HEADER_HINT = "What a block returns may change its shapes only together with the shapes of the model's inputs."


@contextmanager
def _unseen_by_profiler() -> Iterator[None]:
    """Around what another thread will wait for: torch's profiler, which notes the end there, would spoil its memory."""
    if not torch._C._autograd._profiler_enabled():
        yield
        return
    torch._C._autograd._enable_record_function(False)
    try:
        yield
    finally:
        torch._C._autograd._enable_record_function(True)


class Mail:
    """One rank's post."""

    def __init__(self, lanes: Lanes, device: torch.device, timeout_s: float) -> None:
        self._lanes = lanes
        self._device = device
        self._rank = dist.get_rank(lanes.words)
        self.timeout_s = timeout_s
        neighbours = {} if lanes.is_in_order else find_neighbours(lanes.words, device)
        self._outgoing = {peer: Outgoing() for peer in neighbours}
        self._incoming = {peer: Incoming(process) for peer, process in neighbours.items()}
        self._sent: dict[tuple[Any, ...], Form] = {}
        self._received: dict[tuple[Any, ...], Form] = {}
        self._unposted: defaultdict[int, deque[Pending]] = defaultdict(deque)
        """By peer, where messages match by their order: what is expected, and may not come yet."""
        self.sends = Sends(timeout_s)
        self.unheard: dict[int, Callable[[Tell | None], None]] = {}
        """What must be done before the first message from a peer is used, told as what it is done for, if anything."""
        self.waiting: Tell | None = None
        """What the rank waits for at the moment."""

    def close(self) -> None:
        """Wait until everything sent has arrived."""
        self.sends.close()

    def wait(self, work: Any, tell: Tell, more_s: float = 0.0) -> None:
        """Wait until a transfer has ended."""
        self.waiting = tell
        wait_for(work, self.timeout_s + more_s, tell)
        self.waiting = None

    def wait_on_device(self, work: Any, tell: Tell) -> None:
        """The same for a sum of tensors on the device."""
        self.wait(self._lanes.watched(work), tell)

    def send(self, packed: Packed, peer: int, tag: int, signature: Any, tell: Tell) -> None:
        """Send a carry."""
        self.sends.check()
        key = (signature, peer, tag)
        form = packed.form
        known = self._sent.get(key)
        if known is None:
            known = self._sent[key] = form
            self.send_object(form, peer, tag, tell)
        elif known != form:
            raise MismatchError(f"{tell()}: {difference(known, form)}", hint=HEADER_HINT)
        if self.copies(packed, peer):
            slab = self._outgoing[peer].put([in_memory_order(item) for item in packed.tensors], known.tensors)
            self.send_tensors([torch.tensor([slab])], peer, tag, tell)
            if slab != NO_SLAB:
                return
            packed = packed.with_tensors([tensor.clone() for tensor in packed.tensors])
        if self._lanes.is_in_order:
            # Not by `send_tensors`: that is for the host's memory.
            self._send_over(self._lanes.between(self._rank, peer), packed.tensors, peer, tag, tell)
        else:
            self.send_tensors(packed.tensors, peer, tag, tell)

    def send_tensors(self, tensors: Sequence[Tensor], peer: int, tag: int, tell: Tell) -> None:
        """Send tensors in the host's memory, whose form the other side knows."""
        self._send_over(self._lanes.words, tensors, peer, tag, tell)

    def _send_over(self, group: Any, tensors: Sequence[Tensor], peer: int, tag: int, tell: Tell) -> None:
        for tensor in tensors:
            if tensor.numel():
                flat = in_memory_order(tensor)
                try:
                    with _unseen_by_profiler():
                        # What dist.isend does, less its checks.
                        work = group.send([flat], peer, tag)
                except RuntimeError as error:
                    raise failure(error, tell) from error
                self.sends.add(work, flat, tell)

    def expect(self, peer: int, tag: int, signature: Any, tell: Tell) -> "Pending":
        """Post the receive of a carry."""
        self.sends.check()
        pending = Pending(self, peer, tag, signature, tell, [], [], self._received.get((signature, peer, tag)))
        if self._lanes.is_in_order and (peer in self.unheard or self._unposted[peer] or pending.form is None):
            self._unposted[peer].append(pending)
        elif pending.form is not None:
            pending.post(pending.form)
        return pending

    def hear(self, peer: int, tell: Tell) -> None:
        """Before something from a peer is used."""
        if peer in self.unheard:
            self.unheard.pop(peer)(tell)

    def let_come(self, pending: "Pending") -> None:
        """Post a receive that was not posted yet, behind those before it, as soon as the form is told."""
        line = self._unposted[pending.peer] if self._lanes.is_in_order else deque([pending])
        while line and (not pending.is_posted or self._form(line[0]) is not None):
            first = line.popleft()
            first.post(self._form(first) or self._learn_form(first))

    def _form(self, pending: "Pending") -> Form | None:
        return self._received.get((pending.signature, pending.peer, pending.tag))

    def _learn_form(self, pending: "Pending") -> Form:
        """Receive what precedes the first message of its kind."""
        form: Form = self.receive_object(pending.peer, pending.tag, pending.tell)
        self._received[pending.signature, pending.peer, pending.tag] = form
        return form

    def copies(self, packed: Packed, peer: int) -> bool:
        """Whether a carry for this rank is copied when it is sent, so that its tensors may change afterwards."""
        return peer in self._outgoing and is_worthwhile(packed.form.tensors)

    @property
    def shared_bytes(self) -> int:
        """The memory in which this rank hands things over; what is in it belongs to the ranks that receive it."""
        return sum(item.num_bytes for item in self._outgoing.values())

    def shares_memory(self, peer: int, form: Form) -> bool:
        """Whether a carry of this form comes in shared memory."""
        return peer in self._incoming and is_worthwhile(form.tensors)

    def take_shared(self, peer: int, slab: int, form: Form) -> list[Tensor]:
        """What a neighbour has put into shared memory."""
        return self._incoming[peer].take(slab, form.tensors)

    def receive_tensor(self, tensor: Tensor, peer: int, tag: int, tell: Tell) -> Any:
        """Post the receive of one plain tensor into the host's memory."""
        return _receive_over(self._lanes.words, tensor, peer, tag, tell)

    def receive_on_device(self, tensor: Tensor, peer: int, tag: int, tell: Tell) -> Any:
        """Post the receive of one plain tensor of a carry."""
        return _receive_over(self._lanes.between(peer, self._rank), tensor, peer, tag, tell)

    def send_object(self, value: Any, peer: int, tag: int, tell: Tell) -> None:
        """Send anything that can be pickled."""
        body = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        self.send_tensors([torch.tensor([len(body)]), body], peer, tag, tell)

    def receive_object(self, peer: int, tag: int, tell: Tell, more_s: float = 0.0) -> Any:
        """Wait for it, so much longer than for other things."""
        length = torch.zeros(1, dtype=torch.int64)
        self.wait(self.receive_tensor(length, peer, tag, tell), tell, more_s)
        body = torch.empty(int(length), dtype=torch.uint8)
        self.wait(self.receive_tensor(body, peer, tag, tell), tell, more_s)
        return pickle.loads(body.numpy().tobytes())

    def empty(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A buffer."""
        return torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype, device=self._device)


def _receive_over(group: Any, tensor: Tensor, peer: int, tag: int, tell: Tell) -> Any:
    try:
        return group.recv([tensor], peer, tag)
    except RuntimeError as error:
        raise failure(error, tell) from error


@dataclass(eq=False)
class Pending:
    """A carry on its way."""

    mail: Mail
    peer: int
    tag: int
    signature: Any
    tell: Tell
    tensors: list[Tensor]
    works: list[Any]
    form: Form | None
    is_posted: bool = False
    slab: Tensor | None = None
    """Where word of the shared memory comes, if the carry comes there."""
    arrived_s: float = 0.0
    """When it was found to be there."""

    def post(self, form: Form) -> None:
        """Let the tensors come, or word of where they are in shared memory."""
        self.form, self.is_posted = form, True
        if self.mail.shares_memory(self.peer, form):
            self.slab = torch.empty(1, dtype=torch.int64)
            self.works.append(self.mail.receive_tensor(self.slab, self.peer, self.tag, self.tell))
        else:
            self.post_tensors(form)

    def post_tensors(self, form: Form) -> None:
        """Make buffers and let the tensors come."""
        for item in form.tensors:
            tensor = self.mail.empty(item.shape, item.stride, item.dtype)
            self.tensors.append(tensor)
            if tensor.numel():
                flat = in_memory_order(tensor)
                self.works.append(self.mail.receive_on_device(flat, self.peer, self.tag, self.tell))

    def wait(self) -> Packed:
        """The carry, when it is there."""
        self.mail.hear(self.peer, self.tell)
        if not self.is_posted:
            self.mail.let_come(self)
        assert self.form is not None, "what is posted has a form"
        self._finish()
        if self.slab is not None:
            slab = int(self.slab)
            if slab == NO_SLAB:
                self.post_tensors(self.form)
                self._finish()
            else:
                self.tensors = self.mail.take_shared(self.peer, slab, self.form)
        self.arrived_s = perf_counter()
        tensors, self.tensors = self.tensors, []
        return from_form(self.form, tensors)

    def _finish(self) -> None:
        for work in self.works:
            self.mail.wait(work, self.tell)
        self.works.clear()
