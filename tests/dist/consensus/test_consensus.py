"""All ranks continue together, or all raise the same error."""

import pickle
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, Queue
from typing import Any, TypeVar

import pytest

from penstock.dist.consensus.consensus import GRACE_S, Consensus, Failed, PeerExchange
from penstock.dist.failures import Describe
from penstock.errors import InputError, PeerLost, RunError

WORLD = 3
T = TypeVar("T")


class Queues:
    """A transport between threads of this process."""

    def __init__(self, rank: int, queues: dict[tuple[int, int], "Queue[Any]"], timeout_s: float) -> None:
        self._rank, self._queues, self._timeout_s = rank, queues, timeout_s

    def send_object(self, value: Any, peer: int, _tag: int, _describe: Describe) -> None:
        self._queues[self._rank, peer].put(pickle.dumps(value))

    def receive_object(self, peer: int, _tag: int, describe: Describe, extra_s: float = 0.0) -> Any:
        try:
            return pickle.loads(self._queues[peer, self._rank].get(timeout=self._timeout_s + extra_s))
        except Empty:
            raise PeerLost(describe()) from None


class Ranks:
    """The consensus of every rank, each on a thread of its own."""

    def __init__(self, timeout_s: float = 20.0, world: int = WORLD) -> None:
        queues = {(one, other): Queue[Any]() for one in range(world) for other in range(world)}
        self.failures: list[tuple[int, BaseException]] = []
        self.views = [
            Consensus(
                PeerExchange(Queues(rank, queues, timeout_s), rank, world),
                rank,
                world,
                partial(self._note_failure, rank),
            )
            for rank in range(world)
        ]

    def _note_failure(self, rank: int, error: BaseException) -> None:
        self.failures.append((rank, error))

    def run(self, call: Callable[[Consensus], T]) -> list[T | Exception]:
        """Call on every rank. Returns the results or errors by rank."""
        outcomes: dict[int, T | Exception] = {}

        def attempt(view: Consensus) -> None:
            try:
                outcomes[view.rank] = call(view)
            except Exception as error:
                outcomes[view.rank] = error

        threads = [threading.Thread(target=attempt, args=(view,)) for view in self.views]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [outcomes[rank] for rank in range(len(self.views))]


def test_rank_0_answers_each_rank() -> None:
    ranks = Ranks()
    answers = ranks.run(lambda view: view.decide("adding", lambda: view.rank, lambda all_: [sum(all_) + n for n in all_]))
    assert answers == [3, 4, 5]
    assert ranks.run(lambda view: view.run_everywhere("working", lambda: view.rank**2)) == [0, 1, 4]
    assert ranks.failures == []


@pytest.mark.parametrize("bad", [{0}, {2}, {1, 2}])
def test_all_raise_the_error_of_the_lowest_rank_that_failed(bad: set[int]) -> None:
    ranks = Ranks()

    def local(rank: int) -> None:
        if rank in bad:
            raise InputError(f"bad {rank}")

    errors = ranks.run(lambda view: view.run_everywhere("reading", lambda: local(view.rank)))
    assert [type(error) for error in errors] == [InputError] * WORLD
    assert {str(error) for error in errors} == {f"bad {min(bad)}"}
    # Invalid input ends no run: the next decision is as good as any.
    assert ranks.failures == []
    assert ranks.run(lambda view: view.run_everywhere("reading", lambda: 1)) == [1] * WORLD


@pytest.mark.parametrize("fails", ["local", "joint"])
def test_an_unexpected_error_ends_the_run_of_all(fails: str) -> None:
    ranks = Ranks()

    def fail(is_here: bool) -> list[None]:
        if is_here:
            raise ValueError("no")
        return [None] * WORLD

    errors = ranks.run(
        lambda view: view.decide(
            "saving", lambda: fail(fails == "local" and view.rank == 1), lambda _: fail(fails == "joint")
        )
    )
    name = "rank 1" if fails == "local" else "rank 0"
    assert all(isinstance(error, RunError) and error.what == f"{name}: ValueError: no" for error in errors)
    assert sorted(rank for rank, _ in ranks.failures) == [0, 1, 2]
    # Only the rank that failed has the cause.
    causes = [error.__cause__ for error in errors if isinstance(error, RunError)]
    assert isinstance(causes.pop(1 if fails == "local" else 0), ValueError)
    assert causes == [None, None]


def test_a_rank_that_is_missing_is_named() -> None:
    ranks = Ranks(timeout_s=0.2)

    def call(view: Consensus) -> None:
        if view.rank != 1:
            view.run_everywhere("saving", lambda: None)

    errors = ranks.run(call)
    assert [str(error) for error in errors] == [
        "rank 0, saving (with rank 1)",
        "None",
        "rank 0, saving (with rank 1)",
    ]


def test_many_ranks_exchange_along_a_tree() -> None:
    """Rank 0 has eight children, and answers and errors of the others pass through them."""
    ranks = Ranks(world=20)
    answers = ranks.run(lambda view: view.decide("adding", lambda: view.rank, lambda all_: [sum(all_) + n for n in all_]))
    assert answers == [190 + rank for rank in range(20)]

    def call(view: Consensus) -> None:
        if view.rank != 19:
            view.run_everywhere("saving", lambda: None)

    missing = Ranks(timeout_s=0.2, world=20)
    errors = missing.run(call)
    assert errors.pop(19) is None
    assert {str(error) for error in errors} == {"rank 2, saving (with rank 19)"}


def test_a_rank_that_cannot_be_reached_does_not_keep_others_from_the_failure() -> None:
    sent: list[tuple[int, Any]] = []

    class Broken:
        """Rank 1 cannot be reached."""

        def send_object(self, value: Any, peer: int, _tag: int, describe: Describe) -> None:
            if peer == 1:
                raise PeerLost(describe())
            sent.append((peer, value))

        def receive_object(self, peer: int, tag: int, describe: Describe, extra_s: float = 0.0) -> Any:
            raise AssertionError("rank 0 receives nothing here")

    exchange = PeerExchange(Broken(), 0, WORLD)
    failed = Failed(InputError("bad"))
    assert exchange.scatter(failed, "saving", 0.0) is failed
    assert sent == [(2, failed)]
    # An answer that cannot be sent is a failure of its own.
    with pytest.raises(PeerLost, match=r"rank 0, saving \(with rank 1\)"):
        exchange.scatter([1, 2, 3], "saving", 0.0)


def test_other_ranks_wait_longer_than_rank_0() -> None:
    limits: list[tuple[int, float]] = []

    class Noting:
        def send_object(self, value: Any, peer: int, tag: int, describe: Describe) -> None:
            pass

        def receive_object(self, peer: int, tag: int, describe: Describe, extra_s: float = 0.0) -> Any:
            limits.append((peer, extra_s))
            return dict.fromkeys(range(WORLD))

    PeerExchange(Noting(), 0, WORLD).gather(0, "saving", 7.0)
    PeerExchange(Noting(), 2, WORLD).gather(0, "saving", 7.0)
    PeerExchange(Noting(), 2, WORLD).scatter(None, "saving", 7.0)
    assert limits == [(1, 7.0), (2, 7.0), (0, 7.0 + GRACE_S)]


def test_a_deadline_of_its_own() -> None:
    """Ranks that save a checkpoint may take longer than those that exchange activations."""
    waits: list[float] = []

    class Transport:
        def send_object(self, value: object, peer: int, tag: int, describe: object) -> None:
            pass

        def receive_object(self, peer: int, tag: int, describe: object, extra_s: float = 0.0) -> dict[int, str]:
            waits.append(extra_s)
            return {peer: "result"}

    exchange = PeerExchange(Transport(), 0, 3, extra_s=100.0)
    assert exchange.gather("own", "saves", 7.0) == ["own", "result", "result"]
    assert waits == [107.0, 107.0]
