"""A pool of rank processes that tests share, and that a failed test cannot spoil for the next one.

`RankPool.run` calls a function on the first `num_ranks` processes as the ranks of one process group. Starting a process
and joining a group take longer than most tests, so processes and groups are kept between calls while all goes well.

- The test's process hosts the store of every group, on a port that stays bound (`loopback_store`). Each group has its
  own prefix in it.
- Every request has a number, and the answer repeats it. An answer with another number is an error, never a result.
- A call ends with an answer from every rank, or the pool kills its processes, reaps them, and starts fresh ones for the
  next call. This includes calls in which a rank raised: its peers may hold half a message.
- Deadlines are staggered. Starting, joining and calling have a deadline each. A rank that misses one dumps the stacks
  of its threads and exits; only later does the test's process give up and report those stacks.
"""

import pickle
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.support.runtime import message_order
from tests.support.runtime.forkserver import warm_context
from tests.support.runtime.loopback_store import host_store
from tests.support.runtime.rank_server import READY, STOP, Answer, Failure, Outcome, Request, join_group, serve

MAX_RANKS = 4
LOST = "Lost"
NO_ANSWER = "NoAnswer"


@dataclass(frozen=True)
class Deadlines:
    """Seconds until a rank gives up. The test's process waits `margin_s` longer."""

    start_s: float = 300.0
    join_s: float = 100.0
    call_s: float = 150.0
    operation_s: float = 90.0
    """For one operation of the store or the process group."""
    margin_s: float = 20.0
    stragglers_s: float = 10.0
    """How long the other ranks may take to answer after one has failed; their errors can be the more telling ones."""


class RankError(Exception):
    """A call failed on a rank, or a rank was lost."""


class RankPool:
    """Up to `max_ranks` processes that run functions as the ranks of a process group.

    Args:
        max_ranks: Number of processes.
        backend: Backend of their process groups.
        deadlines: How long things may take.
        prepare: Called in every process when it has started.
    """

    def __init__(
        self,
        max_ranks: int = MAX_RANKS,
        backend: str = "gloo",
        deadlines: Deadlines | None = None,
        prepare: Callable[[], object] = message_order.register,
    ) -> None:
        self.max_ranks = max_ranks
        self._backend = backend
        self._prepare = prepare
        self.deadlines = deadlines or Deadlines()
        self._processes: _Processes | None = None
        self._size = 0
        self._number = READY
        self._num_groups = 0

    def run(self, num_ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function on ranks 0 to `num_ranks` - 1 and return the results in the order of the ranks.

        Raises:
            RankError: The function raised on a rank, or a rank was lost or gave no answer in time.
        """
        outcomes = self._call(num_ranks, function, arguments, await_stragglers=False)
        return results(outcomes)

    def outcomes(self, num_ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Outcome]:
        """Call a function that may fail, and wait for the outcome on every rank."""
        return self._call(num_ranks, function, arguments)

    def outcome_of(self, rank: int, num_ranks: int, function: Callable[..., Any], *arguments: Any) -> Outcome:
        """Call a function and wait for its outcome on one rank only; the others may never answer."""
        return self._call(num_ranks, function, arguments, awaited=[rank])[rank]

    def close(self) -> None:
        """End the processes."""
        if self._processes is not None:
            self._processes.stop(self.deadlines.margin_s)
        self._processes, self._size = None, 0

    def _call(
        self,
        num_ranks: int,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        *,
        awaited: Sequence[int] | None = None,
        await_stragglers: bool = True,
    ) -> list[Outcome]:
        assert 1 <= num_ranks <= self.max_ranks, f"{num_ranks} ranks of a pool of {self.max_ranks}"
        call = pickle.dumps((function, arguments))
        try:
            self._join(num_ranks)
            deadline_s = self.deadlines.call_s
            ranks = range(num_ranks)
            outcomes = self._request(
                dict.fromkeys(ranks, call), deadline_s, awaited=awaited, await_stragglers=await_stragglers
            )
        except BaseException:
            self._discard()
            raise
        if not all(outcome.succeeded for outcome in outcomes):
            self._discard()
        return outcomes

    def _join(self, size: int) -> None:
        """Start the processes if there are none, and form a group of this size if the last one had another."""
        limits = self.deadlines
        if self._processes is None:
            self._processes = _Processes(self.max_ranks, self._prepare)
            ready = collect(self._processes.lines, READY, limits.start_s + limits.margin_s)
            results([ready.get(rank, no_answer(rank, limits.start_s)) for rank in range(self.max_ranks)])
        if size != self._size:
            self._num_groups += 1
            prefix, port = f"group {self._num_groups}", self._processes.store.port
            common = self._backend, port, prefix
            calls = {
                rank: pickle.dumps((join_group, (*common, rank, size, limits.operation_s)))
                for rank in range(self.max_ranks)
            }
            results(self._request(calls, limits.join_s, await_stragglers=False))
            self._size = size

    def _request(
        self,
        calls: Mapping[int, bytes],
        deadline_s: float,
        *,
        awaited: Sequence[int] | None = None,
        await_stragglers: bool = True,
    ) -> list[Outcome]:
        """Send each rank its call and collect the outcomes; a rank without an answer has failed."""
        assert self._processes is not None
        self._number += 1
        for rank, call in calls.items():
            with suppress(BrokenPipeError, ConnectionResetError):  # a lost rank shows when its answer is read
                self._processes.lines[rank].send_bytes(pickle.dumps(Request(self._number, deadline_s, call)))
        lines = {rank: self._processes.lines[rank] for rank in calls}
        outcomes = collect(
            lines,
            self._number,
            deadline_s + self.deadlines.margin_s,
            awaited=awaited,
            stragglers_s=None if await_stragglers else self.deadlines.stragglers_s,
        )
        return [self._explained(rank, outcomes.get(rank, no_answer(rank, deadline_s))) for rank in calls]

    def _explained(self, rank: int, outcome: Outcome) -> Outcome:
        """The outcome, with the stacks that a lost rank dumped before it exited."""
        assert self._processes is not None
        if outcome.succeeded or outcome.value.kind not in (LOST, NO_ANSWER):
            return outcome
        return outcome._replace(value=outcome.value._replace(details=self._processes.stacks(rank)))

    def _discard(self) -> None:
        if self._processes is not None:
            self._processes.kill()
        self._processes, self._size = None, 0


def no_answer(rank: int, deadline_s: float) -> Outcome:
    """The outcome of a rank that was still busy when the deadline had passed."""
    return Outcome(False, Failure(NO_ANSWER, f"rank {rank} gave no answer (deadline: {deadline_s:g} s)", ""))


def collect(
    lines: Mapping[int, Connection],
    number: int,
    timeout_s: float,
    *,
    awaited: Collection[int] | None = None,
    stragglers_s: float | None = None,
) -> dict[int, Outcome]:
    """Read answers to the request with this number, by rank.

    Args:
        lines: The connection to each rank.
        number: The number of the request.
        timeout_s: How long to wait. Ranks without an answer by then are missing from the result.
        awaited: Return as soon as these ranks have answered; by default all.
        stragglers_s: How long to wait after the first failure; by default until the timeout.

    Raises:
        RankError: A rank answered another request.
    """
    pending = dict(lines)
    outcomes: dict[int, Outcome] = {}
    end = time.monotonic() + timeout_s
    while any(rank in pending for rank in (lines if awaited is None else awaited)):
        ready = wait(list(pending.values()), max(0.0, end - time.monotonic()))
        if not ready:
            break
        for rank in [rank for rank, line in pending.items() if line in ready]:
            outcomes[rank] = _read(pending.pop(rank), rank, number)
            if stragglers_s is not None and not outcomes[rank].succeeded:
                end = min(end, time.monotonic() + stragglers_s)
    return outcomes


def _read(line: Connection, rank: int, number: int) -> Outcome:
    try:
        answer = Answer(*pickle.loads(line.recv_bytes()))
    except (EOFError, ConnectionResetError):
        return Outcome(False, Failure(LOST, f"rank {rank} ended without an answer", ""))
    if answer.number != number:
        raise RankError(f"rank {rank} answered request {answer.number} instead of request {number}")
    return Outcome(*answer.outcome)


def results(outcomes: Sequence[Outcome]) -> list[Any]:
    """The results of a call that must have succeeded on every rank."""
    failed = [
        f"rank {rank}: {outcome.value.message}\n{outcome.value.details}"
        for rank, outcome in enumerate(outcomes)
        if not outcome.succeeded
    ]
    if failed:
        raise RankError("\n".join(failed))
    return [outcome.value for outcome in outcomes]


class _Processes:
    """One set of processes, their connections, and the store through which they form groups."""

    def __init__(self, num_ranks: int, prepare: Callable[[], object]) -> None:
        self.store = host_store()
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-ranks-")
        self.lines: dict[int, Connection] = {}
        self._processes = []
        context = warm_context()
        for rank in range(num_ranks):
            self.lines[rank], theirs = context.Pipe()
            arguments = (rank, theirs, str(self._stacks_path(rank)), prepare)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)

    def stacks(self, rank: int) -> str:
        """The stacks that a rank dumped when it missed its deadline."""
        path = self._stacks_path(rank)
        return path.read_text() if path.exists() else ""

    def stop(self, timeout_s: float) -> None:
        """Let the processes end by themselves, and kill those that do not."""
        for line in self.lines.values():
            with suppress(BrokenPipeError, ConnectionResetError):
                line.send_bytes(STOP)
        end = time.monotonic() + timeout_s
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """Kill and reap the processes, and remove everything that they shared."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        for line in self.lines.values():
            line.close()
        self._directory.cleanup()
        del self.store

    def _stacks_path(self, rank: int) -> Path:
        return Path(self._directory.name) / f"stacks-{rank}.txt"
