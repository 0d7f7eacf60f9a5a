"""All ranks do something, agree on what came of it, and go on together, or stop together with the same message."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.errors import PenstockError, RunError
from penstock.dist.failures import Tell

T = TypeVar("T")
R = TypeVar("R")

TAG = 1 << 30
"""Above the numbers of all messages of a program."""
GRACE_S = 5.0
"""Rank 0 waits for the others, and they wait this much longer for it: it is the one to say who did not come."""


class ObjectTransport(Protocol):
    """Sends and receives Python objects; each call says in words what it is for."""

    def send_object(self, value: Any, peer: int, tag: int, tell: Tell) -> None:
        """Send an object to a rank."""

    def receive_object(self, peer: int, tag: int, tell: Tell, more_s: float = 0.0) -> Any:
        """Receive the next object from a rank; `more_s` extends the deadline."""


class _Failed(NamedTuple):
    error: PenstockError


class Agreement:
    """One rank's seat. Every rank must hold the same meetings in the same order."""

    def __init__(self, mail: ObjectTransport, rank: int, world: int, failed: Callable[[BaseException], None]) -> None:
        self._mail = mail
        self._failed = failed
        self.rank = rank
        self.world = world

    def hold(self, what: str, mine: Callable[[], T], joint: Callable[[list[T]], Sequence[R]]) -> R:
        """Every rank does `mine`; rank 0 does `joint` with what all found, which gives an answer for each rank.

        Whoever fails, all raise the same: rank 0's error first, then that of the lowest rank.
        """
        found = self._attempt(mine)
        if self.rank:
            try:
                self._send(found, 0, what)
                answer = self._receive(0, what, GRACE_S)
            except RunError as error:
                self._failed(error)
                raise
        else:
            answers = self._attempt(lambda: self._conclude(found, what, joint))
            for peer in range(1, self.world):
                if isinstance(answers, _Failed):
                    # Who cannot be reached any more finds the connection closed, which says enough.
                    with suppress(RunError):
                        self._send(answers, peer, what)
                else:
                    self._send(answers[peer], peer, what)
            answer = answers if isinstance(answers, _Failed) else answers[0]
        if isinstance(answer, _Failed):
            if isinstance(answer.error, RunError):
                self._failed(answer.error)
            # Here is more to say of what failed here.
            raise answer.error from (found.error.__cause__ if isinstance(found, _Failed) else None)
        result: R = answer
        return result

    def agree(self, what: str, mine: Callable[[], T]) -> T:
        """Every rank does this, and goes on only if it went well everywhere."""
        kept: list[T] = []
        self.hold(what, lambda: kept.append(mine()), lambda found: [None] * len(found))
        return kept[0]

    def _conclude(self, mine: Any, what: str, joint: Callable[[list[Any]], Sequence[Any]]) -> Sequence[Any]:
        found = [mine, *(self._receive(peer, what) for peer in range(1, self.world))]
        for item in found:
            if isinstance(item, _Failed):
                raise item.error
        return joint(found)

    def _attempt(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except PenstockError as error:
            return _Failed(error)
        except Exception as error:
            # Others cannot be given an error of any kind: not all can be sent.
            text = f"rank {self.rank}: {type(error).__name__}: {error}"
            failed = RunError(text, hint="This was not foreseen; see what that rank says.")
            failed.__cause__ = error
            return _Failed(failed)

    def _send(self, value: Any, peer: int, what: str) -> None:
        self._mail.send_object(value, peer, TAG, self._telling(what, peer))

    def _receive(self, peer: int, what: str, more_s: float = 0.0) -> Any:
        return self._mail.receive_object(peer, TAG, self._telling(what, peer), more_s)

    def _telling(self, what: str, peer: int) -> Tell:
        return lambda: f"rank {self.rank}, {what} (with rank {peer})"
