"""A torch.distributed backend that matches messages by their order, as NCCL does, for machines without a GPU.

Messages have no tags. The messages between two ranks of a group, in both directions, run one after the other, as on
NCCL's stream for a pair of ranks; so do collectives. A send completes when its message is received. The first call
between two ranks, and the first collective, block until the peers make theirs. Gloo carries the messages.
"""

from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.distributed import ProcessGroup, ProcessGroupGloo
from torch.futures import Future as TorchFuture

NAME = "inorder"
LIMIT = timedelta(seconds=60)


class OrderedWork(Work):
    """Like NCCL's work: its completion can be queried, and waiting for it does not block the caller."""

    def __init__(self, done: Future[None]) -> None:
        super().__init__()
        self._done = done

    def is_completed(self) -> bool:
        return self._done.done()

    def wait(self, timeout: timedelta | None = None) -> bool:
        assert timeout is None, "NCCL's wait with a timeout may return at once"
        assert self._done.done(), "NCCL's wait blocks the device, not the caller"
        self._done.result()
        return True

    def get_future(self) -> Any:
        future: Any = TorchFuture()
        future.set_result(None)
        return future


class InOrderGroup(ProcessGroup):
    """One rank's process group."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._gloo: Any = ProcessGroupGloo(store, rank, size, LIMIT)
        self._streams: dict[Any, ThreadPoolExecutor] = defaultdict(lambda: ThreadPoolExecutor(1))
        self._connected: set[int] = set()

    def getBackendName(self) -> str:
        return NAME

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> OrderedWork:
        assert tag == 0, "this backend has no tags"
        self._connect(peer)
        return self._submit(peer, lambda: self._gloo.send(tensors, peer, 1))

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> OrderedWork:
        assert tag == 0, "this backend has no tags"
        self._connect(peer)
        return self._submit(peer, lambda: self._gloo.recv(tensors, peer, 1))

    def allreduce(self, tensors: list[torch.Tensor], options: Any = None) -> OrderedWork:  # type: ignore[override]
        self._connect_all()
        return self._submit("all", lambda: self._gloo.allreduce(tensors, options))

    def all_gather_single(self, output: torch.Tensor, own: torch.Tensor, _options: Any = None) -> OrderedWork:
        self._connect_all()
        return self._submit("all", lambda: self._gloo.allgather([list(output.chunk(self.size()))], [own]))

    def _connect_all(self) -> None:
        for peer in range(self.size()):
            if peer != self.rank():
                self._connect(peer)

    def _connect(self, peer: int) -> None:
        """Block until the peer makes its first call, too."""
        if peer not in self._connected:
            self._connected.add(peer)
            mine, theirs = torch.zeros(1), torch.zeros(1)
            send, recv = self._gloo.send([mine], peer, 2), self._gloo.recv([theirs], peer, 2)
            send.wait(LIMIT)
            recv.wait(LIMIT)

    def _submit(self, stream: Any, operation: Any) -> OrderedWork:
        return OrderedWork(self._streams[stream].submit(lambda: operation().wait(LIMIT) and None))


def _make(store: Any, rank: int, size: int, _timeout: timedelta) -> ProcessGroup:
    return InOrderGroup(store, rank, size)


def register() -> None:
    """Register the backend for CPU tensors."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _make, devices=["cpu"])
