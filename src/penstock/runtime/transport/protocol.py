"""The interface between the runtime and the transport of tensors between ranks."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from penstock.device import Mark
from penstock.dist import Describe
from penstock.runtime.tensors import PackedPayload, PayloadMeta


class PendingReceive(Protocol):
    """A receive that has been posted."""

    arrived_at: Mark
    """When `wait` found the payload complete; 0 before that."""

    def wait(self) -> PackedPayload:
        """Return the payload. Block until it has arrived."""


class Transport(Protocol):
    """Point-to-point messages of one rank.

    Every call takes a function that describes it. The function is called only to format an error or the rank's status.

    A *payload* is a packed tree of tensors and values. Its form (shapes, strides, dtypes) precedes the first message
    with the same signature, peer and tag; later messages must have the same form. Plain tensors are sent without their
    form, which both ends can compute. Plain tensors and objects always travel through host memory.
    """

    timeout_s: float
    """Deadline of every wait."""
    waiting_for: Describe | None
    """The wait in progress, read by the heartbeat thread."""
    peer_checks: dict[int, Callable[[Describe | None], None]]
    """By peer: a check that runs once, before the first message from that peer is used."""

    def send(self, packed: PackedPayload, peer: int, tag: int, signature: Any, describe: Describe) -> None:
        """Send a payload without blocking."""

    def irecv(self, peer: int, tag: int, signature: Any, describe: Describe) -> PendingReceive:
        """Post the receive of a payload."""

    def copies_on_send(self, packed: PackedPayload, peer: int) -> bool:
        """Return whether `send` copies this payload, so that its tensors may change as soon as it returns."""

    def send_tensors(self, tensors: Sequence[Tensor], peer: int, tag: int, describe: Describe) -> None:
        """Send plain tensors without blocking."""

    def irecv_tensor(self, tensor: Tensor, peer: int, tag: int, describe: Describe) -> Any:
        """Post the receive of one plain contiguous tensor. Return a work handle for `wait`."""

    def send_object(self, value: Any, peer: int, tag: int, describe: Describe) -> None:
        """Pickle an object and send it without blocking."""

    def receive_object(self, peer: int, tag: int, describe: Describe, extra_s: float = 0.0) -> Any:
        """Return the next object from a peer. The deadline is `timeout_s + extra_s`."""

    def agree_on_form(self, peer: int, tag: int, signature: Any, meta: PayloadMeta) -> None:
        """Note the form of payloads that both ends know, if that spares a message."""

    def check_peer(self, peer: int, describe: Describe) -> None:
        """Run the pending entry of `peer_checks` for this peer, if there is one."""

    def wait(self, work: Any, describe: Describe, extra_s: float = 0.0) -> None:
        """Block until a work handle has completed. The deadline is `timeout_s + extra_s`."""

    def wait_device(self, work: Any, describe: Describe) -> None:
        """Wait for a collective on device tensors: on the device if it has streams, else block."""

    def flush(self) -> None:
        """Hand all sends to the thread that waits for them, and raise the first error of earlier sends."""

    def abandon(self) -> None:
        """Stop waiting for sends, because the run has failed."""

    def close(self) -> None:
        """Block until everything that was sent has arrived, then release groups and shared memory."""
