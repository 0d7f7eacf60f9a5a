"""Ranks that share a stage, and must add something up over all rows of a micro-batch in the midst of a job.

Every member that has rows sends its part to every other, and all add up in the same order, so they get the same bits.
Members without rows are left out on all sides: everybody knows the rows of all. What was added up in a forward is
noted, so that the forward can run again without anybody else.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.dist import Tell
from penstock.errors import InputError
from penstock.runtime.transport import Mail

UNEXPECTED_HINT = (
    "Have batch norms as modules in training mode when the pipeline is made, use GroupNorm, or plan so that one device "
    "has the whole stage."
)


class Turn(NamedTuple):
    """One job of one micro-batch at which ranks meet."""

    ranks: tuple[int, ...]
    """Those that have rows, in the order of the members."""
    rank: int
    tag: int
    tell: Callable[[int], Tell]


class Meeting:
    """A stage's meetings as one member sees them."""

    def __init__(self, mail: Mail, *, is_expected: bool) -> None:
        self._mail = mail
        self._is_expected = is_expected
        self._turn: Turn | None = None
        self._recalled: Iterator[Tensor] | None = None
        self.notes: list[Tensor] = []
        """What was added up in the last turn."""

    def add_up(self, mine: Tensor) -> Tensor:
        """The sum over all members that have rows."""
        if not self._is_expected:
            raise InputError(
                "a block normalises over all rows of a micro-batch (batch norm in training), which are on several "
                "devices, and it was not known that it would",
                hint=UNEXPECTED_HINT,
            )
        if self._recalled is not None:
            return next(self._recalled)
        if self._turn is None:
            # As if somebody else had the same.
            return mine + mine
        total = self._exchange(self._turn, mine)
        self.notes.append(total)
        return total

    def _exchange(self, turn: Turn, mine: Tensor) -> Tensor:
        others = [rank for rank in turn.ranks if rank != turn.rank]
        here = mine.cpu()
        for rank in others:
            self._mail.send_tensors([here], rank, turn.tag, turn.tell(rank))
        coming = {rank: torch.empty_like(here) for rank in others}
        works = [self._mail.receive_tensor(coming[rank], rank, turn.tag, turn.tell(rank)) for rank in others]
        for rank, work in zip(others, works, strict=True):
            self._mail.wait(work, turn.tell(rank))
        total = torch.zeros_like(here)
        for rank in turn.ranks:
            total += here if rank == turn.rank else coming[rank]
        return total.to(mine.device)

    @contextmanager
    def taking(self, turn: Turn) -> Iterator[None]:
        """What is added up meanwhile belongs to this turn."""
        self._turn, self.notes = turn, []
        try:
            yield
        finally:
            self._turn = None

    @contextmanager
    def recalling(self, notes: Sequence[Tensor]) -> Iterator[None]:
        """A forward that runs again gets what was noted when it ran first."""
        self._recalled = iter(notes)
        try:
            yield
        finally:
            self._recalled = None

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Nobody is asked: for trying out, where the numbers do not matter."""
        turn, self._turn = self._turn, None
        try:
            yield
        finally:
            self._turn = turn
