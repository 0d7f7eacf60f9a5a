"""Consensus between ranks: all continue together, or all raise the same error."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.dist.failures import Describe
from penstock.errors import PenstockError, RunError

T = TypeVar("T")
R = TypeVar("R")

CONSENSUS_TAG = 1 << 30
"""Above the tags of all messages of a program."""
GRACE_S = 5.0
"""Extra time for which other ranks wait for rank 0. Rank 0 times out first, and its error names the missing rank."""


class ObjectTransport(Protocol):
    """Sends and receives Python objects. Each call takes a function that describes it for error messages."""

    def send_object(self, value: Any, peer: int, tag: int, describe: Describe) -> None:
        """Send an object to a rank."""

    def receive_object(self, peer: int, tag: int, describe: Describe, extra_s: float = 0.0) -> Any:
        """Receive the next object from a rank; `extra_s` extends the deadline."""


class _Failed(NamedTuple):
    error: PenstockError


class Consensus:
    """One rank's view of the decisions that all ranks take together.

    Every rank must make the same calls in the same order.

    Args:
        transport: Sends objects to rank 0 and back.
        rank: This rank.
        world: Number of ranks.
        on_failure: Called with the error before it is raised, if the run cannot continue.
    """

    def __init__(
        self, transport: ObjectTransport, rank: int, world: int, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._transport = transport
        self._on_failure = on_failure
        self.rank = rank
        self.world = world

    def decide(self, what: str, local: Callable[[], T], joint: Callable[[list[T]], Sequence[R]]) -> R:
        """Run `local` on every rank, then `joint` on rank 0 with all results, and return this rank's answer.

        Args:
            what: What the ranks do, for error messages: "begins a checkpoint".
            local: Runs on every rank.
            joint: Runs on rank 0. It takes the results by rank, and returns one answer for each rank.

        Returns:
            The answer of `joint` for this rank.

        Raises:
            PenstockError: On all ranks, if any of them failed: the error of the lowest rank that failed.
            RunError: A rank did not take part in time, or its connection is lost.
        """
        result = self._attempt(local)
        if self.rank:
            try:
                self._send(result, 0, what)
                answer = self._receive(0, what, GRACE_S)
            except RunError as error:
                self._on_failure(error)
                raise
        else:
            answers = self._attempt(lambda: self._conclude(result, what, joint))
            for peer in range(1, self.world):
                if isinstance(answers, _Failed):
                    # A rank that cannot be reached finds its connection closed, and fails by itself.
                    with suppress(RunError):
                        self._send(answers, peer, what)
                else:
                    self._send(answers[peer], peer, what)
            answer = answers if isinstance(answers, _Failed) else answers[0]
        if isinstance(answer, _Failed):
            if isinstance(answer.error, RunError):
                self._on_failure(answer.error)
            # The rank that failed also has the cause, which is not sent.
            raise answer.error from (result.error.__cause__ if isinstance(result, _Failed) else None)
        own_answer: R = answer
        return own_answer

    def run_everywhere(self, what: str, local: Callable[[], T]) -> T:
        """Run `local` on every rank, and return its result once it has succeeded on all of them.

        Raises:
            PenstockError: On all ranks, if it failed on any of them.
        """
        results: list[T] = []
        self.decide(what, lambda: results.append(local()), lambda outcomes: [None] * len(outcomes))
        return results[0]

    def _conclude(self, own: Any, what: str, joint: Callable[[list[Any]], Sequence[Any]]) -> Sequence[Any]:
        results = [own, *(self._receive(peer, what) for peer in range(1, self.world))]
        for item in results:
            if isinstance(item, _Failed):
                raise item.error
        return joint(results)

    def _attempt(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except PenstockError as error:
            return _Failed(error)
        except Exception as error:
            # Not every exception can be pickled, so other ranks get its text only.
            text = f"rank {self.rank}: {type(error).__name__}: {error}"
            failed = RunError(text, hint="This error is unexpected. The traceback is in the output of that rank.")
            failed.__cause__ = error
            return _Failed(failed)

    def _send(self, value: Any, peer: int, what: str) -> None:
        self._transport.send_object(value, peer, CONSENSUS_TAG, self._describe(what, peer))

    def _receive(self, peer: int, what: str, extra_s: float = 0.0) -> Any:
        return self._transport.receive_object(peer, CONSENSUS_TAG, self._describe(what, peer), extra_s)

    def _describe(self, what: str, peer: int) -> Describe:
        return lambda: f"rank {self.rank}, {what} (with rank {peer})"
