"""Sums over all rows of a micro-batch, exchanged between the replicas of a stage inside an action.

Every replica that has rows sends its part to every other one. All sum in the same order, so they get the same bits.
Replicas without rows take no part; every rank can compute which ones these are. The sums of a forward are recorded, so
that the forward can be recomputed without communication.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.dist import Describe
from penstock.errors import InputError
from penstock.runtime.transport import Transport

UNEXPECTED_HINT = (
    "Put batch norms into training mode, as modules, before the pipeline is created, use GroupNorm, or plan the stage "
    "on one device."
)


class SyncPoint(NamedTuple):
    """One action of one micro-batch in which replicas communicate."""

    ranks: tuple[int, ...]
    """The ranks that have rows, in the order of the replicas."""
    rank: int
    """This rank."""
    tag: int
    describe: Callable[[int], Describe]


class ReplicaSync:
    """The sums over replicas of one stage, on one rank.

    Args:
        transport: Carries the parts. None: the stage runs alone, for a trial.
        is_expected: Whether the stage had layers that need such sums when the pipeline was created.
    """

    def __init__(self, transport: Transport | None, *, is_expected: bool) -> None:
        self._transport = transport
        self._is_expected = is_expected
        self._point: SyncPoint | None = None
        self._replayed: Iterator[Tensor] | None = None
        self.sync_sums: list[Tensor] = []
        """The sums at the last sync point, in order."""

    def all_reduce(self, part: Tensor) -> Tensor:
        """Sum a tensor over all replicas that have rows.

        Raises:
            InputError: No layer of the stage was known to need sums over replicas.
        """
        if not self._is_expected:
            raise InputError(
                "a layer normalizes over all rows of a micro-batch (batch norm in training mode), but its stage has "
                "several replicas and had no such layer when the pipeline was created",
                hint=UNEXPECTED_HINT,
            )
        if self._replayed is not None:
            return next(self._replayed)
        if self._point is None:
            # As if one other replica had the same rows.
            return part + part
        total = self._exchange(self._point, part)
        self.sync_sums.append(total)
        return total

    def _exchange(self, point: SyncPoint, part: Tensor) -> Tensor:
        peers = [rank for rank in point.ranks if rank != point.rank]
        own = part.cpu()
        assert self._transport is not None, "a sync point belongs to a stage with other ranks"
        for rank in peers:
            self._transport.send_tensors([own], rank, point.tag, point.describe(rank))
        received = {rank: torch.empty_like(own) for rank in peers}
        works = [self._transport.irecv_tensor(received[rank], rank, point.tag, point.describe(rank)) for rank in peers]
        for rank, work in zip(peers, works, strict=True):
            self._transport.wait(work, point.describe(rank))
        total = torch.zeros_like(own)
        for rank in point.ranks:
            total += own if rank == point.rank else received[rank]
        return total.to(part.device)

    @contextmanager
    def at(self, point: SyncPoint) -> Iterator[None]:
        """Context of an action: sums are exchanged at this sync point."""
        self._point, self.sync_sums = point, []
        try:
            yield
        finally:
            self._point = None

    @contextmanager
    def replay(self, sync_sums: Sequence[Tensor]) -> Iterator[None]:
        """Context of a recompute: use the sums that the first forward recorded."""
        self._replayed = iter(sync_sums)
        try:
            yield
        finally:
            self._replayed = None

    @contextmanager
    def isolate(self) -> Iterator[None]:
        """Context of a trial run without communication, where the numbers do not matter."""
        point, self._point = self._point, None
        try:
            yield
        finally:
            self._point = point
