"""Messages between ranks: sent without waiting, received into buffers posted ahead, every wait with a deadline.

The first message of its kind (which segment, which micro-batch, for inputs of these shapes) is preceded by its form, so
that the receiver can make buffers; later ones must have the same form. On a rank one thread waits for sends to end and
lets go of what was sent, so nothing else waits for them. To wake it takes longer than to send: it gets small messages,
which hold no memory to speak of, many at once.
"""

import atexit
import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from penstock.errors import MismatchError, PeerLost, RunError, RuntimeTimeout
from penstock.runtime.carry import Form, Packed, difference, from_form, in_memory_order
from penstock.runtime.shared import NO_SLAB, WORTHWHILE_BYTES, Incoming, Outgoing, find_neighbours, is_worthwhile

Tell = Callable[[], str]
"""Says who is doing what with whom, for messages to people."""

SMALL_BYTES = WORTHWHILE_BYTES
MOST_SMALL = 256
"""Small sends that nobody has waited for yet; those that were in time take none."""

Sent = tuple[Any, Tensor, Tell]
"""A send under way, and what must stay until it has ended."""

HEADER_HINT = "What a block returns may change its shapes only together with the shapes of the model's inputs."


def _wait_for(work: Any, timeout_s: float, tell: Tell) -> None:
    """Wait until a transfer has ended, at most so long."""
    try:
        work.wait(timedelta(seconds=timeout_s))
    except RuntimeError as error:
        text = str(error)
        if "imed out" in text or "imeout" in text:
            raise RuntimeTimeout(
                f"{tell()}: nothing came of it within {timeout_s:g} s",
                hint="See what the other rank did last; if it is only slow, give a longer timeout.",
            ) from error
        raise PeerLost(
            f"{tell()}: the connection is lost ({text.splitlines()[0][:200]})",
            hint="The other rank has ended, or cannot be reached: its own message says more.",
        ) from error


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

    def __init__(self, group: Any, device: torch.device, timeout_s: float) -> None:
        self._group = group
        self._device = device
        self.timeout_s = timeout_s
        neighbours = find_neighbours(group, device)
        self._outgoing = {peer: Outgoing() for peer in neighbours}
        self._incoming = {peer: Incoming(process) for peer, process in neighbours.items()}
        self._sent: dict[tuple[Any, ...], Form] = {}
        self._received: dict[tuple[Any, ...], Form] = {}
        self._outbox: queue.SimpleQueue[list[Sent] | None] = queue.SimpleQueue()
        self._small: list[Sent] = []
        self._small_lock = threading.Lock()
        """Several threads may send."""
        self._failed: list[RunError] = []
        self._given_up = False
        self.unheard: dict[int, Callable[[], None]] = {}
        """What must be done before the first message from a peer is used."""
        self.waiting: Tell | None = None
        """What the rank waits for at the moment."""
        self._thread = threading.Thread(target=self._watch, name="penstock-sends", daemon=True)
        self._thread.start()
        atexit.register(self._leave)

    def close(self) -> None:
        """Wait until everything sent has arrived."""
        atexit.unregister(self._leave)
        self.hand_over()
        self._outbox.put(None)
        self._thread.join(self.timeout_s)
        self.check()

    def give_up(self) -> None:
        """The run has failed: nothing on its way holds the process up."""
        self._given_up = True
        # To let go of a send that has not ended would wait for it: the thread has them.
        self.hand_over()
        self._outbox.put(None)

    def _leave(self) -> None:
        """The process ends. What is on its way would be lost with it, so wait, unless the run has failed."""
        if not self._given_up:
            self.close()
        elif self._thread.is_alive():
            # It waits inside the network library. If that lets go of it while Python shuts down, the process aborts.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def wait(self, work: Any, tell: Tell, more_s: float = 0.0) -> None:
        """Wait until a transfer has ended."""
        self.waiting = tell
        _wait_for(work, self.timeout_s + more_s, tell)
        self.waiting = None

    def check(self) -> None:
        """Raise what went wrong with a send in the meantime."""
        if self._failed:
            raise self._failed[0]

    def send(self, packed: Packed, peer: int, tag: int, signature: Any, tell: Tell) -> None:
        """Send a carry."""
        self.check()
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
        self.send_tensors(packed.tensors, peer, tag, tell)

    def send_tensors(self, tensors: Sequence[Tensor], peer: int, tag: int, tell: Tell) -> None:
        """Send tensors whose form the other side knows."""
        for tensor in tensors:
            if tensor.numel():
                flat = in_memory_order(tensor)
                with _unseen_by_profiler():
                    # What dist.isend does, less its checks.
                    work = self._group.send([flat], peer, tag)
                if flat.nbytes > SMALL_BYTES:
                    self._outbox.put([(work, flat, tell)])
                    continue
                with self._small_lock:
                    self._small.append((work, flat, tell))
                if len(self._small) >= MOST_SMALL:
                    self.hand_over()

    def hand_over(self) -> None:
        """Let the small sends so far be waited for."""
        with self._small_lock:
            small, self._small = self._small, []
        if small:
            self._outbox.put(small)

    def expect(self, peer: int, tag: int, signature: Any, tell: Tell) -> "Pending":
        """Post the receive of a carry."""
        self.check()
        form = self._received.get((signature, peer, tag))
        pending = Pending(self, peer, tag, signature, tell, form, [], [])
        if form is not None:
            pending.post(form)
        return pending

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

    def receive_tensor(self, tensor: Tensor, peer: int, tag: int) -> Any:
        """Post the receive of one plain tensor."""
        return self._group.recv([tensor], peer, tag)

    def learn_form(self, peer: int, tag: int, signature: Any, tell: Tell) -> Form:
        """Receive what precedes the first message of its kind."""
        form: Form = self.receive_object(peer, tag, tell)
        self._received[signature, peer, tag] = form
        return form

    def send_object(self, value: Any, peer: int, tag: int, tell: Tell) -> None:
        """Send anything that can be pickled."""
        body = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        self.send_tensors([torch.tensor([len(body)]), body], peer, tag, tell)

    def receive_object(self, peer: int, tag: int, tell: Tell, more_s: float = 0.0) -> Any:
        """Wait for it, so much longer than for other things."""
        length = torch.zeros(1, dtype=torch.int64)
        self.wait(self.receive_tensor(length, peer, tag), tell, more_s)
        body = torch.empty(int(length), dtype=torch.uint8)
        self.wait(self.receive_tensor(body, peer, tag), tell, more_s)
        return pickle.loads(body.numpy().tobytes())

    def empty(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A buffer."""
        return torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype, device=self._device)

    def _watch(self) -> None:
        while (items := self._outbox.get()) is not None:
            while items:
                work, _, tell = items.pop()
                try:
                    _wait_for(work, self.timeout_s, tell)
                except RunError as error:
                    self._failed.append(error)
                del work, tell


@dataclass(eq=False)
class Pending:
    """A carry on its way."""

    mail: Mail
    peer: int
    tag: int
    signature: Any
    tell: Tell
    form: Form | None
    tensors: list[Tensor]
    works: list[Any]
    slab: Tensor | None = None
    """Where word of the shared memory comes, if the carry comes there."""
    arrived_s: float = 0.0
    """When it was found to be there."""

    def post(self, form: Form) -> None:
        """Let the tensors come, or word of where they are in shared memory."""
        if self.mail.shares_memory(self.peer, form):
            self.slab = torch.empty(1, dtype=torch.int64)
            self.works.append(self.mail.receive_tensor(self.slab, self.peer, self.tag))
        else:
            self.post_tensors(form)

    def post_tensors(self, form: Form) -> None:
        """Make buffers and let the tensors come."""
        for item in form.tensors:
            tensor = self.mail.empty(item.shape, item.stride, item.dtype)
            self.tensors.append(tensor)
            if tensor.numel():
                self.works.append(self.mail.receive_tensor(in_memory_order(tensor), self.peer, self.tag))

    def wait(self) -> Packed:
        """The carry, when it is there."""
        if self.peer in self.mail.unheard:
            self.mail.unheard.pop(self.peer)()
        if self.form is None:
            self.form = self.mail.learn_form(self.peer, self.tag, self.signature, self.tell)
            self.post(self.form)
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
