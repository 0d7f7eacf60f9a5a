"""Consensus between ranks: all continue together, or all raise the same error.

The decisions are the same for training and for a probe; how results and answers travel is not. Training sends them
between ranks (`PeerExchange`); a probe must not use the links that it measures, and has an exchange of its own.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.dist.failures import Describe
from penstock.dist.consensus.rank_tree import tree_from
from penstock.errors import PenstockError, RunError

T = TypeVar("T")
R = TypeVar("R")

CONSENSUS_TAG = 1 << 30
"""Above the tags of all messages of a program."""
GRACE_S = 5.0
"""Extra time for which a rank waits, for each level below it in the tree of ranks, and for rank 0. The rank that waits
directly for a missing one times out first, and its error names it."""


class Failed(NamedTuple):
    """Stands for the result of a rank that failed, and for the answers to all ranks if any did."""

    error: PenstockError


Answers: TypeAlias = Sequence[Any] | Failed


class Exchange(Protocol):
    """Carries the results of all ranks to rank 0, and its answers back. A result and an answer can be `Failed`."""

    def gather(self, result: Any, what: str, extra_s: float) -> list[Any]:
        """Return the results of all ranks on rank 0, and nothing on other ranks.

        Args:
            result: The result of this rank.
            what: What the ranks do, for error messages.
            extra_s: Time that they may take, in addition to the deadline.
        """

    def scatter(self, answers: Answers | None, what: str, extra_s: float) -> Any:
        """Return the answer for this rank; rank 0 has one for each rank. Follows a `gather` with the same arguments."""


class Consensus:
    """One rank's view of the decisions that all ranks take together.

    Every rank must make the same calls in the same order.

    Args:
        exchange: Carries results to rank 0, and answers back.
        rank: This rank.
        world: Number of ranks.
        on_failure: Called with the error before it is raised, if the run cannot continue.
    """

    def __init__(
        self,
        exchange: Exchange,
        rank: int,
        world: int,
        on_failure: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        self._exchange = exchange
        self._on_failure = on_failure
        self.rank = rank
        self.world = world

    def decide(
        self, what: str, local: Callable[[], T], joint: Callable[[list[T]], Sequence[R]], *, extra_s: float = 0.0
    ) -> R:
        """Run `local` on every rank, then `joint` on rank 0 with all results, and return this rank's answer.

        Args:
            what: What the ranks do, for error messages: "begins a checkpoint".
            local: Runs on every rank.
            joint: Runs on rank 0. It takes the results by rank, and returns one answer for each rank.
            extra_s: Time that the ranks may take, in addition to the deadline.

        Returns:
            The answer of `joint` for this rank.

        Raises:
            PenstockError: On all ranks, if any of them failed: the error of the lowest rank that failed.
            RunError: A rank did not take part in time, or its connection is lost.
        """
        result = self._attempt(local)
        if self.rank:
            try:
                self._exchange.gather(result, what, extra_s)
                answer = self._exchange.scatter(None, what, extra_s)
            except RunError as error:
                self._on_failure(error)
                raise
        else:
            answers = self._attempt(lambda: joint(_require_all(self._exchange.gather(result, what, extra_s))))
            answer = self._exchange.scatter(answers, what, extra_s)
        if isinstance(answer, Failed):
            if isinstance(answer.error, RunError):
                self._on_failure(answer.error)
            # The rank that failed also has the cause, which is not sent.
            causes = [item.error.__cause__ for item in (answer, result) if isinstance(item, Failed)]
            raise answer.error from next(filter(None, causes), None)
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

    def _attempt(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except PenstockError as error:
            return Failed(error)
        except Exception as error:
            # Not every exception can be pickled, so other ranks get its text only.
            text = f"rank {self.rank}: {type(error).__name__}: {error}"
            failed = RunError(text, hint="This error is unexpected. The traceback is in the output of that rank.")
            failed.__cause__ = error
            return Failed(failed)


def _require_all(results: list[Any]) -> list[Any]:
    """Return the results, or raise the error of the first rank that failed."""
    for item in results:
        if isinstance(item, Failed):
            raise item.error
    return results


class ObjectTransport(Protocol):
    """Sends and receives Python objects. Each call takes a function that describes it for error messages."""

    def send_object(self, value: Any, peer: int, tag: int, describe: Describe) -> None:
        """Send an object to a rank."""

    def receive_object(self, peer: int, tag: int, describe: Describe, extra_s: float = 0.0) -> Any:
        """Receive the next object from a rank; `extra_s` extends the deadline."""


class PeerExchange:
    """An `Exchange` over messages between ranks, along a tree with rank 0 as its root.

    Args:
        transport: Sends the messages.
        rank: This rank.
        world: Number of ranks.
        extra_s: Time that ranks may take for anything, in addition to the deadline of the transport.
    """

    def __init__(self, transport: ObjectTransport, rank: int, world: int, extra_s: float = 0.0) -> None:
        self._transport = transport
        self._extra_s = extra_s
        self._rank = rank
        self._world = world
        self._tree = tree_from(0, world)

    def gather(self, result: Any, what: str, extra_s: float) -> list[Any]:
        """Return the results of all ranks on rank 0; one is received from every rank, whether it failed or not."""
        results = {self._rank: result}
        lost: RunError | None = None
        for child in self._tree.children(self._rank):
            if lost is None:
                try:
                    results |= self._receive(child, what, extra_s + GRACE_S * self._tree.height(child))
                    continue
                except RunError as error:
                    if not self._rank:
                        raise
                    lost = error
            # Rank 0 tells all ranks. Others that are missing, too, must not take as long again.
            results |= dict.fromkeys(self._tree.below(child), Failed(lost))
        parent = self._tree.parent(self._rank)
        if parent is not None:
            self._send(results, parent, what)
            return []
        return [results[rank] for rank in range(self._world)]

    def scatter(self, answers: Answers | None, what: str, extra_s: float) -> Any:
        """Return the answer for this rank."""
        parent = self._tree.parent(self._rank)
        mine: dict[int, Any] | Failed
        if parent is not None:
            # All that rank 0 waits for, and the way back.
            levels = self._tree.height(0)
            mine = self._receive(parent, what, extra_s + GRACE_S * levels)
        else:
            assert answers is not None, "rank 0 has the answers"
            mine = answers if isinstance(answers, Failed) else dict(enumerate(answers))
        for child in self._tree.children(self._rank):
            if isinstance(mine, Failed):
                # A rank that cannot be reached finds its connection closed, and fails by itself.
                with suppress(RunError):
                    self._send(mine, child, what)
            else:
                self._send({rank: mine[rank] for rank in self._tree.below(child)}, child, what)
        return mine if isinstance(mine, Failed) else mine[self._rank]

    def _send(self, value: Any, peer: int, what: str) -> None:
        self._transport.send_object(value, peer, CONSENSUS_TAG, self._describe(what, peer))

    def _receive(self, peer: int, what: str, extra_s: float) -> Any:
        return self._transport.receive_object(
            peer, CONSENSUS_TAG, self._describe(what, peer), extra_s + self._extra_s
        )

    def _describe(self, what: str, peer: int) -> Describe:
        return lambda: f"rank {self._rank}, {what} (with rank {peer})"
