"""Peers of one rank that are no processes: their messages, and their connections of gloo."""

import datetime
import sys
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import ProcessGroupGloo

from penstock.dist import raise_connection_limit

TIMEOUT_S = 120.0


class SimulatedPeers:
    """The transport of a rank whose peers send what this rank expects."""

    timeout_s = TIMEOUT_S

    def __init__(self) -> None:
        self.num_sent = 0
        self.peer_checks: dict[int, Any] = {}
        self._digest = torch.zeros(1, dtype=torch.int64)

    def send_tensors(self, tensors: Sequence[Tensor], _peer: int, _tag: int, _describe: Any) -> None:
        """Count a message."""
        self.num_sent += 1
        if tensors[0].dtype == torch.int64:
            self._digest = tensors[0]

    def irecv_tensor(self, tensor: Tensor, _peer: int, _tag: int, _describe: Any) -> None:
        """Receive the digest of the same batch."""
        tensor.copy_(self._digest)

    def wait(self, _work: None, _describe: Any) -> None:
        """Everything has arrived."""

    def check_peer(self, peer: int, describe: Any) -> None:
        """Run the check of a peer."""
        self.peer_checks.pop(peer, lambda _describe: None)(describe)


def connections_of_all(pairs: Collection[tuple[int, int]], num_ranks: int) -> int:
    """Connect the control groups of all ranks, which are threads here, and return their number of connections."""
    from penstock.runtime.transport import connect_pairs

    raise_connection_limit()
    sys.setswitchinterval(1e-3)
    store = HashStore()
    before = _num_sockets()

    def open_group(rank: int) -> ProcessGroupGloo:
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        # Ranks are told apart by their listeners.
        options._devices = [ProcessGroupGloo.create_device(interface="lo", lazy_init=True)]
        options._threads = 1
        options._timeout = datetime.timedelta(seconds=TIMEOUT_S)
        return ProcessGroupGloo(store, rank, num_ranks, options)

    with ThreadPoolExecutor(num_ranks) as threads:
        groups = list(threads.map(open_group, range(num_ranks)))
        list(threads.map(lambda rank: connect_pairs(groups[rank], rank, pairs, TIMEOUT_S), range(num_ranks)))
    # Both ends of a connection are in this process, and one listener per rank.
    return (_num_sockets() - before - num_ranks) // 2


def _num_sockets() -> int:
    num = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            num += str(path.readlink()).startswith("socket:")
    return num
