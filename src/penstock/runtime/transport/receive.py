"""One payload in transit, as its receiver sees it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from penstock.device import Mark
from penstock.dist import Describe
from penstock.runtime.tensors import PackedPayload, PayloadMeta, flatten_dense, payload_from_meta
from penstock.runtime.transport.shared_memory import NO_SLAB


class _Receiver(Protocol):
    """The methods of a transport that a receive uses."""

    allocate: Callable[[Sequence[int], Sequence[int], torch.dtype], Tensor]

    def check_peer(self, peer: int, describe: Describe) -> None: ...
    def post_late(self, receive: "PayloadReceive") -> None: ...
    def arrives_in_shared_memory(self, peer: int, meta: PayloadMeta) -> bool: ...
    def take_shared(self, peer: int, slab: int, meta: PayloadMeta) -> list[Tensor]: ...
    def irecv_tensor(self, tensor: Tensor, peer: int, tag: int, describe: Describe) -> Any: ...
    def irecv_device_tensor(self, tensor: Tensor, peer: int, tag: int, describe: Describe) -> Any: ...
    def wait(self, work: Any, describe: Describe, extra_s: float = 0.0) -> None: ...
    def wait_payload(self, work: Any, describe: Describe) -> None: ...
    def mark(self) -> Mark: ...


@dataclass(eq=False)
class PayloadReceive:
    """`PendingReceive` of a `TorchTransport`."""

    transport: _Receiver
    peer: int
    tag: int
    signature: Any
    describe: Describe
    tensors: list[Tensor]
    works: list[Any]
    meta: PayloadMeta | None
    is_posted: bool = False
    slab: Tensor | None = None
    """Receives the number of the slab, if the payload arrives in shared memory."""
    arrived_at: Mark = 0.0
    """When `wait` found the payload complete."""

    def post(self, meta: PayloadMeta) -> None:
        """Post the receives of the tensors, or of the slab that holds them."""
        self.meta, self.is_posted = meta, True
        if self.transport.arrives_in_shared_memory(self.peer, meta):
            self.slab = torch.empty(1, dtype=torch.int64)
            self.works.append(self.transport.irecv_tensor(self.slab, self.peer, self.tag, self.describe))
        else:
            self.post_tensors(meta)

    def post_tensors(self, meta: PayloadMeta) -> None:
        """Allocate buffers and post the receives of the tensors. A tensor without elements is not sent."""
        for item in meta.tensors:
            tensor = self.transport.allocate(item.shape, item.stride, item.dtype)
            self.tensors.append(tensor)
            if tensor.numel():
                flat = flatten_dense(tensor)
                self.works.append(self.transport.irecv_device_tensor(flat, self.peer, self.tag, self.describe))

    def wait(self) -> PackedPayload:
        """Return the payload. Block until it has arrived."""
        self.transport.check_peer(self.peer, self.describe)
        if not self.is_posted:
            self.transport.post_late(self)
        assert self.meta is not None, "a posted receive has a form"
        self._wait_for_works()
        if self.slab is not None:
            slab = int(self.slab)
            if slab == NO_SLAB:
                self.post_tensors(self.meta)
                self._wait_for_works()
            else:
                self.tensors = self.transport.take_shared(self.peer, slab, self.meta)
        self.arrived_at = self.transport.mark()
        tensors, self.tensors = self.tensors, []
        return payload_from_meta(self.meta, tensors)

    def _wait_for_works(self) -> None:
        wait = self.transport.wait if self.slab is not None and not self.tensors else self.transport.wait_payload
        for work in self.works:
            wait(work, self.describe)
        self.works.clear()
