"""A backend of torch.distributed that is as strict as NCCL: for tests of what must run there, where there is no GPU.

It has no numbers of messages: they match by their order. The messages of two ranks in a group, in both directions, are
done one after the other, as on NCCL's one stream for a pair; so are collectives. A send ends when it is received, and
the first call of a pair, or of a sum, holds up whoever makes it until the others have come to theirs. Underneath is
gloo.
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
    """Waits as NCCL does only in that it has an end that can be asked for."""

    def __init__(self, done: Future[None]) -> None:
        super().__init__()
        self._done = done

    def is_completed(self) -> bool:
        return self._done.done()

    def wait(self, timeout: timedelta | None = None) -> bool:
        assert timeout is None, "NCCL's wait with a deadline may not wait at all"
        assert self._done.done(), "NCCL's wait holds up the device, not whoever waits"
        self._done.result()
        return True

    def get_future(self) -> Any:
        found: Any = TorchFuture()
        found.set_result(None)
        return found


class InOrderGroup(ProcessGroup):
    """One group as a rank sees it."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._gloo: Any = ProcessGroupGloo(store, rank, size, LIMIT)
        self._streams: dict[Any, ThreadPoolExecutor] = defaultdict(lambda: ThreadPoolExecutor(1))
        self._met: set[int] = set()

    def getBackendName(self) -> str:
        return NAME

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> OrderedWork:
        assert tag == 0, "there are no numbers of messages here"
        self._meet(peer)
        return self._do(peer, lambda: self._gloo.send(tensors, peer, 1))

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> OrderedWork:
        assert tag == 0, "there are no numbers of messages here"
        self._meet(peer)
        return self._do(peer, lambda: self._gloo.recv(tensors, peer, 1))

    def allreduce(self, tensors: list[torch.Tensor], options: Any = None) -> OrderedWork:  # type: ignore[override]
        for peer in range(self.size()):
            if peer != self.rank():
                self._meet(peer)
        return self._do("all", lambda: self._gloo.allreduce(tensors, options))

    def _meet(self, peer: int) -> None:
        """Whoever comes first waits for the other."""
        if peer not in self._met:
            self._met.add(peer)
            mine, theirs = torch.zeros(1), torch.zeros(1)
            there, back = self._gloo.send([mine], peer, 2), self._gloo.recv([theirs], peer, 2)
            there.wait(LIMIT)
            back.wait(LIMIT)

    def _do(self, stream: Any, begin: Any) -> OrderedWork:
        return OrderedWork(self._streams[stream].submit(lambda: begin().wait(LIMIT) and None))


def _make(store: Any, rank: int, size: int, _timeout: timedelta) -> ProcessGroup:
    return InOrderGroup(store, rank, size)


def register() -> None:
    """Make the backend known, for tensors in the host's memory."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _make, devices=["cpu"])
