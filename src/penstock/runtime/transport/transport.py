"""The transport over torch.distributed: sends never block, receives are posted ahead, every wait has a deadline.

The form of a payload (shapes, strides, dtypes) precedes the first message of its kind: of a stage and a micro-batch,
for inputs of these shapes. The receiver allocates buffers from it. Later messages of that kind must have the same form.

[Note: ordered links] Where messages match by order (`process_groups.py`), every receive is posted where the program has
it: the proof that no device waits for another in a cycle depends on that. If its form is not known yet, the host waits
for it there, and before the first receive from a peer for the check in `peer_checks`, which shows that the batch there
has the same form as the batch here. The sender sends both without waiting.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from penstock.device import DeviceClock
from penstock.dist import Describe, translate_error, wait_for
from penstock.errors import MismatchError, RunError
from penstock.runtime.tensors import PackedPayload, PayloadMeta, describe_difference, flatten_dense
from penstock.runtime.transport.device_watch import DeviceWatch
from penstock.runtime.transport.process_groups import ProcessGroups
from penstock.runtime.transport.receive import PayloadReceive
from penstock.runtime.transport.send_queue import SendQueue
from penstock.runtime.transport.shared_memory import (
    NO_SLAB,
    IncomingSlabs,
    OutgoingSlabs,
    find_neighbours,
    uses_shared_memory,
)

FORM_HINT = "The output shapes of a layer may change only together with the shapes of the model's inputs."

SendTensors = Callable[[Sequence[Tensor], int, int, Describe], None]
"""Sends plain tensors: tensors, peer, tag, description."""


@dataclass(frozen=True)
class TransportHooks:
    """Replacements for parts of a `TorchTransport`, for emulation and tests."""

    send: Callable[[SendTensors, Callable[[RunError], None]], SendTensors] | None = None
    """Takes a function that sends plain tensors at once, and one that records an error of a later send. Returns the
    function to use instead."""
    wait: Callable[[Any, float, Describe], None] = wait_for
    """Blocks until a work handle has completed."""
    allocate: Callable[[Sequence[int], Sequence[int], torch.dtype], Tensor] | None = None
    """Returns a receive buffer of a shape, stride and dtype."""


NO_HOOKS = TransportHooks()


@contextmanager
def _hidden_from_profiler() -> Iterator[None]:
    """Hide a send from torch's profiler, which would record its end on the thread that waits and corrupt memory."""
    if not torch._C._autograd._profiler_enabled():
        yield
        return
    torch._C._autograd._enable_record_function(False)
    try:
        yield
    finally:
        torch._C._autograd._enable_record_function(True)


class TorchTransport:
    """`Transport` over torch.distributed and, between ranks of a host, shared memory.

    Args:
        groups: Process groups of this rank.
        device: Device of received payloads.
        timeout_s: Deadline of every wait.
        hooks: Replacements for parts of the transport.
    """

    def __init__(
        self, groups: ProcessGroups, device: torch.device, timeout_s: float, hooks: TransportHooks = NO_HOOKS
    ) -> None:
        self._groups = groups
        self._device = device
        self._rank = dist.get_rank(groups.control)
        self.timeout_s = timeout_s
        self._wait_for = hooks.wait
        self.mark = DeviceClock(device).mark
        send_now = partial(self._send_over, groups.control)
        self.allocate = self._allocate if hooks.allocate is None else hooks.allocate
        neighbours = {} if groups.is_in_order else find_neighbours(groups.control, device)
        self._outgoing = {peer: OutgoingSlabs() for peer in neighbours}
        self._incoming = {peer: IncomingSlabs(process) for peer, process in neighbours.items()}
        self._sent: dict[tuple[Any, ...], PayloadMeta] = {}
        self._received: dict[tuple[Any, ...], PayloadMeta] = {}
        self.send_queue = queue = SendQueue(timeout_s)
        self._send_tensors: SendTensors = send_now if hooks.send is None else hooks.send(send_now, queue.note_error)
        self.watch = DeviceWatch(timeout_s, queue)
        if groups.orders_streams:
            self.watch.start()
        self.peer_checks: dict[int, Callable[[Describe | None], None]] = {}
        """By peer: a check that runs once, before the first message is used. It takes what needs the message."""
        self.waiting_for: Describe | None = None
        """The wait in progress."""

    def flush(self) -> None:
        """Hand all sends to the thread that waits for them, and raise the first error of earlier sends."""
        self.send_queue.hand_over()
        self.send_queue.check()

    def abandon(self) -> None:
        """Stop waiting for sends, because the run has failed."""
        self.send_queue.abandon()

    def close(self) -> None:
        """Block until everything that was sent has arrived, then release groups and shared memory."""
        self.send_queue.close()
        self.watch.close()
        for outgoing in self._outgoing.values():
            outgoing.close()
        self._incoming.clear()
        self._groups.close()

    def wait(self, work: Any, describe: Describe, extra_s: float = 0.0) -> None:
        """Block until a work handle has completed."""
        self.waiting_for = describe
        self._wait_for(work, self.timeout_s + extra_s, describe)
        self.waiting_for = None

    def wait_device(self, work: Any, describe: Describe) -> None:
        """Wait for a collective on device tensors: on the device if it has streams, else block."""
        self.wait_payload(self._groups.with_deadline(work), describe)

    def wait_payload(self, work: Any, describe: Describe) -> None:
        """Wait for a message between devices: on the device if it has streams, else block."""
        if not self._groups.orders_streams:
            self.wait(work, describe)
            return
        try:
            work.order_stream()
        except RuntimeError as error:
            raise translate_error(error, describe, self.timeout_s) from error
        self.watch.add(work, describe)

    def send(self, packed: PackedPayload, peer: int, tag: int, signature: Any, describe: Describe) -> None:
        """Send a payload without blocking.

        Raises:
            MismatchError: Its form differs from that of the first message with this signature, peer and tag.
        """
        self.send_queue.check()
        key = (signature, peer, tag)
        meta = packed.meta
        known = self._sent.get(key)
        if known is None:
            known = self._sent[key] = meta
            self.send_object(meta, peer, tag, describe)
        elif known != meta:
            raise MismatchError(f"{describe()}: {describe_difference(known, meta)}", hint=FORM_HINT)
        if self.copies_on_send(packed, peer):
            slab = self._outgoing[peer].put([flatten_dense(item) for item in packed.tensors], known.tensors)
            self.send_tensors([torch.tensor([slab])], peer, tag, describe)
            if slab != NO_SLAB:
                return
            packed = packed.with_tensors([tensor.clone() for tensor in packed.tensors])
        if self._groups.is_in_order:
            # `send_tensors` is for host memory only.
            self._send_over(self._groups.p2p_group(self._rank, peer), packed.tensors, peer, tag, describe)
        else:
            self.send_tensors(packed.tensors, peer, tag, describe)

    def send_tensors(self, tensors: Sequence[Tensor], peer: int, tag: int, describe: Describe) -> None:
        """Send tensors in host memory. The receiver must know their form."""
        self._send_tensors(tensors, peer, tag, describe)

    def _send_over(self, group: Any, tensors: Sequence[Tensor], peer: int, tag: int, describe: Describe) -> None:
        for tensor in tensors:
            if tensor.numel():
                flat = flatten_dense(tensor)
                try:
                    with _hidden_from_profiler():
                        # As dist.isend, without its checks.
                        work = group.send([flat], peer, tag)
                except RuntimeError as error:
                    raise translate_error(error, describe) from error
                self.send_queue.add(work, flat, describe)

    def irecv(self, peer: int, tag: int, signature: Any, describe: Describe) -> PayloadReceive:
        """Post the receive of a payload, or as much of it as the known forms allow."""
        self.send_queue.check()
        meta = self._received.get((signature, peer, tag))
        receive = PayloadReceive(self, peer, tag, signature, describe, [], [], meta)
        if self._groups.is_in_order:
            self.check_peer(peer, describe)
            receive.post(meta or self._receive_form(receive))
        elif meta is not None:
            receive.post(meta)
        return receive

    def agree_on_form(self, peer: int, tag: int, signature: Any, meta: PayloadMeta) -> None:
        """Note the form of payloads that both ends know, so that it need not be sent.

        Only where messages match by order: there a receive whose form is not known is posted late, and a device that is
        waited for as a whole could not finish its send until then.
        """
        if self._groups.is_in_order:
            self._sent[signature, peer, tag] = self._received[signature, peer, tag] = meta

    def check_peer(self, peer: int, describe: Describe) -> None:
        """Run the pending entry of `peer_checks` for this peer, if there is one."""
        if peer in self.peer_checks:
            self.peer_checks.pop(peer)(describe)

    def post_late(self, receive: PayloadReceive) -> None:
        """Post a receive whose form was not known before. The form precedes its payload, or has arrived since."""
        meta = self._received.get((receive.signature, receive.peer, receive.tag))
        receive.post(meta or self._receive_form(receive))

    def _receive_form(self, receive: PayloadReceive) -> PayloadMeta:
        """Receive the form that precedes the first message of its kind."""
        meta: PayloadMeta = self.receive_object(receive.peer, receive.tag, receive.describe)
        self._received[receive.signature, receive.peer, receive.tag] = meta
        return meta

    def copies_on_send(self, packed: PackedPayload, peer: int) -> bool:
        """Return whether `send` copies this payload, so that its tensors may change as soon as it returns."""
        return peer in self._outgoing and uses_shared_memory(packed.meta.tensors)

    @property
    def shared_bytes(self) -> int:
        """Size of the shared memory that this rank fills. Its contents belong to the ranks that receive them."""
        return sum(item.num_bytes for item in self._outgoing.values())

    def arrives_in_shared_memory(self, peer: int, meta: PayloadMeta) -> bool:
        """Return whether a payload of this form arrives in shared memory."""
        return peer in self._incoming and uses_shared_memory(meta.tensors)

    def take_shared(self, peer: int, slab: int, meta: PayloadMeta) -> list[Tensor]:
        """Return the tensors that a rank of the same host has put into a slab of shared memory."""
        return self._incoming[peer].take(slab, meta.tensors)

    def irecv_tensor(self, tensor: Tensor, peer: int, tag: int, describe: Describe) -> Any:
        """Post the receive of one plain contiguous tensor in host memory."""
        return _receive_over(self._groups.control, tensor, peer, tag, describe)

    def irecv_device_tensor(self, tensor: Tensor, peer: int, tag: int, describe: Describe) -> Any:
        """Post the receive of one contiguous tensor of a payload."""
        return _receive_over(self._groups.p2p_group(peer, self._rank), tensor, peer, tag, describe)

    def send_object(self, value: Any, peer: int, tag: int, describe: Describe) -> None:
        """Pickle an object and send it without blocking."""
        body = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        self.send_tensors([torch.tensor([len(body)]), body], peer, tag, describe)

    def receive_object(self, peer: int, tag: int, describe: Describe, extra_s: float = 0.0) -> Any:
        """Return the next object from a peer."""
        length = torch.zeros(1, dtype=torch.int64)
        self.wait(self.irecv_tensor(length, peer, tag, describe), describe, extra_s)
        body = torch.empty(int(length), dtype=torch.uint8)
        self.wait(self.irecv_tensor(body, peer, tag, describe), describe, extra_s)
        return pickle.loads(body.numpy().tobytes())

    def _allocate(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype, device=self._device)


def _receive_over(group: Any, tensor: Tensor, peer: int, tag: int, describe: Describe) -> Any:
    try:
        return group.recv([tensor], peer, tag)
    except RuntimeError as error:
        raise translate_error(error, describe) from error
