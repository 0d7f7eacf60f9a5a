"""Messages for measurements: round trips of small messages, and trains of large messages timed by the receiver.

The first message of a train is not timed: it fills the path, uses up the burst of a traffic shaper, and starts the
clock when it arrives. The other messages then arrive at the rate of the link, so the clock of one host suffices.

[Note: messages of accelerators] Their streams wait for messages, one after another, and note the times. The host only
queues them: if it waited for each, its polling would be measured. A device that waits forever is the watchdog's case.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from penstock.device import DeviceClock, Mark, is_accelerator, is_tagged, own_stream, synchronize
from penstock.probe.rank_group import Group

_END, _PING, _TRAIN = 0, 1, 2
_SMALL = 8
"""Bytes of a ping message."""
TAG = 7
REPORT_TAG = 8


class Traffic:
    """Sends and receives messages of one rank, and counts the bytes sent."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.device = group.device
        self._has_tags = is_tagged(group.backend)
        self._orders_streams = not self._has_tags and is_accelerator(group.device)
        self._clock = DeviceClock(group.device)
        self._limit = timedelta(seconds=group.timeout_s)
        self._buffer = torch.zeros(1 << 16, dtype=torch.uint8, device=self.device)
        self.num_sent = 0

    def ping(self, peer: int, count: int) -> list[float]:
        """Return half the round-trip time of `count` small messages."""
        small = self._small()
        marks: list[Mark] = []
        with self._group.translate_errors(peer, "sending to"):
            self._request(peer, _PING, count)
            for _ in range(count):
                marks.append(self._clock.mark())
                self._send(small, peer)
                self._receive(small, peer)
                marks.append(self._clock.mark())
            times_s = self._clock.seconds(marks)
        return [(end_s - start_s) / 2 for start_s, end_s in zip(times_s[::2], times_s[1::2], strict=True)]

    def train(self, peer: int, first: int, num_bytes: int, count: int) -> float:
        """Return the seconds from the arrival of the first message to that of the last of `count` more.

        Args:
            peer: Receiving rank.
            first: Bytes of the first message.
            num_bytes: Bytes of each other message.
            count: Number of other messages.
        """
        with self._group.translate_errors(peer, "sending to"):
            self._request(peer, _TRAIN, count, first, num_bytes)
            self._wait(self._start_sends(peer, [first, *[num_bytes] * count]))
            taken = torch.zeros(1, dtype=torch.float64, device=self.device)
            self._receive(taken, peer)
        return float(taken.item())

    def finish(self, peer: int) -> None:
        """End the service of the peer."""
        with self._group.translate_errors(peer, "sending to"):
            self._request(peer, _END, 0)

    def serve(self, peer: int) -> None:
        """Serve the requests of the peer until it finishes."""
        with self._group.translate_errors(peer, "receiving from"):
            while True:
                order = torch.zeros(4, dtype=torch.int64, device=self.device)
                self._receive(order, peer)
                what, count, first, num_bytes = (int(value) for value in order.tolist())
                posted = self.post_receives(peer, [first, *[num_bytes] * count]) if what == _TRAIN else []
                self._send(self._small(), peer)  # ready
                if what == _END:
                    return
                if what == _PING:
                    small = self._small()
                    for _ in range(count):
                        self._receive(small, peer)
                        self._send(small, peer)
                else:
                    arrived_s = self.wait_arrivals(posted)
                    taken = torch.tensor([arrived_s[-1] - arrived_s[0]], dtype=torch.float64, device=self.device)
                    self._send(taken, peer)

    def send_all(self, peers: Sequence[tuple[int, int, int]]) -> None:
        """Send messages to all peers concurrently; each entry is (peer, bytes of a message, number of messages)."""
        works = []
        for peer, num_bytes, count in peers:
            with self._group.translate_errors(peer, "sending to"):
                works.append((peer, self._start_sends(peer, [num_bytes] * count)))
        for peer, work in works:
            with self._group.translate_errors(peer, "sending to"):
                self._wait(work)

    def post_receives(self, peer: int, sizes: Sequence[int]) -> list[Any]:
        """Prepare to receive messages from a peer; all receives are posted at once if the backend has tags."""
        room = self._message_buffer(max(sizes))
        if not self._has_tags:
            return [(room[:size], peer) for size in sizes]
        return [dist.irecv(room[:size], peer, tag=TAG) for size in sizes]

    def wait_arrivals(self, posted: Sequence[Any]) -> list[float]:
        """Wait for the messages and return the arrival time of each."""
        marks: list[Mark] = []
        with own_stream(self.device):
            for item in posted:
                if isinstance(item, tuple):
                    self._receive(*item)
                else:
                    item.wait(self._limit)
                marks.append(self._clock.mark())
            return self._clock.seconds(marks)

    def _request(self, peer: int, what: int, count: int, first: int = 0, num_bytes: int = 0) -> None:
        self._send(torch.tensor([what, count, first, num_bytes], dtype=torch.int64, device=self.device), peer)
        self._receive(self._small(), peer)

    def _start_sends(self, peer: int, sizes: Sequence[int]) -> list[Any]:
        room = self._message_buffer(max(sizes))
        self.num_sent += sum(sizes)
        if not self._has_tags:
            return [dist.isend(room[:size], peer) for size in sizes]
        return [dist.isend(room[:size], peer, tag=TAG) for size in sizes]

    def _wait(self, works: Sequence[Any]) -> None:
        for work in works:
            if self._orders_streams:
                work.wait()
            else:
                work.wait(self._limit)
        if not self._orders_streams:
            synchronize(self.device)

    def _send(self, tensor: Tensor, peer: int) -> None:
        self.num_sent += tensor.nbytes
        self._wait([dist.isend(tensor, peer, tag=REPORT_TAG if self._has_tags else 0)])

    def _receive(self, tensor: Tensor, peer: int) -> None:
        self._wait([dist.irecv(tensor, peer, tag=REPORT_TAG if self._has_tags else 0)])

    def _small(self) -> Tensor:
        return torch.zeros(_SMALL, dtype=torch.uint8, device=self.device)

    def _message_buffer(self, num_bytes: int) -> Tensor:
        """Return memory for a message. Contents do not matter, so all messages of a rank share it."""
        if self._buffer.numel() < num_bytes:
            # Written once, so that no page fault occurs while messages are timed.
            self._buffer = torch.ones(num_bytes, dtype=torch.uint8, device=self.device)
        return self._buffer
