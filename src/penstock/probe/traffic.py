"""Sending and receiving to measure: small messages there and back, and trains of large ones timed where they arrive.

A train's first message is not timed: it fills the way, uses up what a traffic shaper lets through at once, and starts
the clock when it has arrived. The others then arrive as fast as the link carries them, so the clock of one host is
enough.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from penstock.probe.rank_group import Group

_END, _PING, _TRAIN = 0, 1, 2
_SMALL = 8
"""Bytes of an empty message."""
TAG = 7
REPORT_TAG = 8


class Traffic:
    """What a rank sends and receives, and how much it has sent."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.device = group.device
        self._has_tags = group.backend != "nccl"
        self._limit = timedelta(seconds=group.timeout_s)
        self._buffer = torch.zeros(1 << 16, dtype=torch.uint8, device=self.device)
        self.num_sent = 0

    def ping(self, peer: int, count: int) -> list[float]:
        """Half of the time there and back, so many times."""
        small = self._small()
        found = []
        with self._group.waiting_for(peer, "sending to"):
            self._order(peer, _PING, count)
            for _ in range(count):
                start_s = time.perf_counter()
                self._send(small, peer)
                self._receive(small, peer)
                found.append((time.perf_counter() - start_s) / 2)
        return found

    def train(self, peer: int, first: int, num_bytes: int, count: int) -> float:
        """Seconds from the arrival of the first message to that of the last of `count` more of `num_bytes` each."""
        with self._group.waiting_for(peer, "sending to"):
            self._order(peer, _TRAIN, count, first, num_bytes)
            self._wait(self._sending(peer, [first, *[num_bytes] * count]))
            taken = torch.zeros(1, dtype=torch.float64, device=self.device)
            self._receive(taken, peer)
        return float(taken.item())

    def finish(self, peer: int) -> None:
        """Nothing more will come."""
        with self._group.waiting_for(peer, "sending to"):
            self._order(peer, _END, 0)

    def serve(self, peer: int) -> None:
        """Do what the peer asks for, until it has finished."""
        with self._group.waiting_for(peer, "receiving from"):
            while True:
                order = torch.zeros(4, dtype=torch.int64, device=self.device)
                self._receive(order, peer)
                what, count, first, num_bytes = (int(value) for value in order.tolist())
                posted = self.receiving(peer, [first, *[num_bytes] * count]) if what == _TRAIN else []
                self._send(self._small(), peer)  # ready
                if what == _END:
                    return
                if what == _PING:
                    small = self._small()
                    for _ in range(count):
                        self._receive(small, peer)
                        self._send(small, peer)
                else:
                    arrived_s = self.arrivals(posted)
                    taken = torch.tensor([arrived_s[-1] - arrived_s[0]], dtype=torch.float64, device=self.device)
                    self._send(taken, peer)

    def send_all(self, peers: Sequence[tuple[int, int, int]]) -> None:
        """To each peer so many messages of so many bytes, all at the same time: (peer, bytes, count)."""
        works = []
        for peer, num_bytes, count in peers:
            with self._group.waiting_for(peer, "sending to"):
                works.append((peer, self._sending(peer, [num_bytes] * count)))
        for peer, work in works:
            with self._group.waiting_for(peer, "sending to"):
                self._wait(work)

    def receiving(self, peer: int, sizes: Sequence[int]) -> list[Any]:
        """Messages to come from a peer; where the backend allows, room for all is made ahead."""
        room = self._room(max(sizes))
        if not self._has_tags:
            return [(room[:size], peer) for size in sizes]
        return [dist.irecv(room[:size], peer, tag=TAG) for size in sizes]

    def arrivals(self, posted: Sequence[Any]) -> list[float]:
        """When each of them has come."""
        found = []
        for item in posted:
            if isinstance(item, tuple):
                self._receive(*item)
            else:
                item.wait(self._limit)
            found.append(time.perf_counter())
        return found

    def _order(self, peer: int, what: int, count: int, first: int = 0, num_bytes: int = 0) -> None:
        self._send(torch.tensor([what, count, first, num_bytes], dtype=torch.int64, device=self.device), peer)
        self._receive(self._small(), peer)

    def _sending(self, peer: int, sizes: Sequence[int]) -> list[Any]:
        room = self._room(max(sizes))
        self.num_sent += sum(sizes)
        if not self._has_tags:
            return [dist.isend(room[:size], peer) for size in sizes]
        return [dist.isend(room[:size], peer, tag=TAG) for size in sizes]

    def _wait(self, works: Sequence[Any]) -> None:
        for work in works:
            work.wait(self._limit)
        self._settle()

    def _send(self, tensor: Tensor, peer: int) -> None:
        self.num_sent += tensor.nbytes
        self._wait([dist.isend(tensor, peer, tag=REPORT_TAG if self._has_tags else 0)])

    def _receive(self, tensor: Tensor, peer: int) -> None:
        self._wait([dist.irecv(tensor, peer, tag=REPORT_TAG if self._has_tags else 0)])

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _small(self) -> Tensor:
        return torch.zeros(_SMALL, dtype=torch.uint8, device=self.device)

    def _room(self, num_bytes: int) -> Tensor:
        """Memory for a message. Its contents do not matter, so all messages of a rank share it."""
        if self._buffer.numel() < num_bytes:
            # Written once, so that no page of it is new to the system while it is timed.
            self._buffer = torch.ones(num_bytes, dtype=torch.uint8, device=self.device)
        return self._buffer
