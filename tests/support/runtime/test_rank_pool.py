"""A pool of ranks survives every kind of failure: the next call works and gets its own answer."""

import faulthandler
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe

import pytest
import torch
import torch.distributed as dist

from tests.support.runtime.rank_pool import (
    LOST,
    NO_ANSWER,
    Deadlines,
    RankError,
    RankPool,
    collect,
)
from tests.support.runtime.rank_server import Answer, Outcome

CALL_S = 2.0
MARGIN_S = 2.0


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    """One pool for all tests here, which break it again and again."""
    pool = RankPool(2, deadlines=Deadlines(stragglers_s=1.0))
    yield pool
    pool.close()


@pytest.fixture
def impatient(pool: RankPool, processes: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[RankPool]:
    """The same pool, with short deadlines during the test only."""
    assert len(processes) == 2
    with monkeypatch.context() as patch:
        patch.setattr(pool, "deadlines", Deadlines(call_s=CALL_S, margin_s=MARGIN_S))
        yield pool


def add_up(value: int) -> tuple[int, int, int]:
    """The rank's process, its rank, and a sum over all ranks."""
    total = torch.tensor([value + dist.get_rank()])
    dist.all_reduce(total)
    return os.getpid(), dist.get_rank(), int(total)


def raise_on_one(rank: int) -> str:
    if dist.get_rank() == rank:
        raise ValueError("raised on purpose")
    return "stale"


def raise_and_hang() -> str:
    """Rank 1 waits for a message of rank 0, which raises instead of sending it."""
    if dist.get_rank() == 0:
        raise ValueError("raised on purpose")
    dist.recv(torch.zeros(1), src=0)
    return "stale"


def kill_one(rank: int) -> str:
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return "stale"


def exit_one(rank: int) -> str:
    if dist.get_rank() == rank:
        os._exit(0)
    return "stale"


def hang_one(rank: int) -> str:
    if dist.get_rank() == rank:
        time.sleep(600)
    return "stale"


def stop_one(rank: int) -> str:
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    return "stale"


def answer_late(seconds: float) -> str:
    """Rank 1 answers after its own deadline and that of the test's process."""
    if dist.get_rank() == 1:
        faulthandler.cancel_dump_traceback_later()
        time.sleep(seconds)
    return "stale"


def return_what_cannot_be_sent() -> Callable[[], None]:
    return lambda: None


@pytest.fixture
def processes(pool: RankPool) -> Iterator[list[int]]:
    """The processes of a pool that works. After the test, it works again, by other processes."""
    before = pool.run(2, add_up, 10)
    assert [(rank, total) for _, rank, total in before] == [(0, 21), (1, 21)]
    yield [process for process, _, _ in before]
    for value in (20, 30):
        after = pool.run(2, add_up, value)
        assert [(rank, total) for _, rank, total in after] == [(0, 2 * value + 1), (1, 2 * value + 1)]
    assert not {process for process, _, _ in after} & {process for process, _, _ in before}
    for process, _, _ in before:
        assert not is_alive(process)


def is_alive(process: int) -> bool:
    """Whether a process exists; one that ended and was not reaped does."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_and_groups_are_kept_while_all_goes_well(pool: RankPool) -> None:
    first, second = pool.run(2, add_up, 1), pool.run(2, add_up, 2)
    assert [process for process, _, _ in first] == [process for process, _, _ in second]
    (alone,) = pool.run(1, add_up, 5)
    assert alone == (first[0][0], 0, 5)
    assert pool.run(2, add_up, 1) == first


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_call_that_raises_on_one_rank(pool: RankPool, rank: int) -> None:
    with pytest.raises(RankError, match=f"rank {rank}: raised on purpose"):
        pool.run(2, raise_on_one, rank)


@pytest.mark.usefixtures("processes")
def test_outcomes_of_a_call_that_raises_on_one_rank(pool: RankPool) -> None:
    first, second = pool.outcomes(2, raise_on_one, 1)
    assert first == (True, "stale")
    assert not second.succeeded
    assert second.value[:2] == ("ValueError", "raised on purpose")
    assert "in raise_on_one" in second.value.details


@pytest.mark.usefixtures("processes")
def test_one_rank_raises_while_the_other_waits_for_it(pool: RankPool) -> None:
    begun = time.monotonic()
    with pytest.raises(RankError, match="rank 0: raised on purpose"):
        pool.run(2, raise_and_hang)
    assert time.monotonic() - begun < pool.deadlines.call_s
    outcome = pool.outcome_of(0, 2, raise_and_hang)
    assert outcome.value[:2] == ("ValueError", "raised on purpose")


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("end", [kill_one, exit_one])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_lost(pool: RankPool, end: Callable[[int], str], rank: int) -> None:
    with pytest.raises(RankError, match=f"rank {rank} ended without an answer"):
        pool.run(2, end, rank)
    outcomes = pool.outcomes(2, end, rank)
    assert outcomes[1 - rank] == (True, "stale")
    assert outcomes[rank].value.kind == LOST


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_between_calls(pool: RankPool, processes: list[int], rank: int) -> None:
    os.kill(processes[rank], signal.SIGKILL)
    with pytest.raises(RankError, match=f"rank {rank} ended without an answer"):
        pool.run(2, add_up, 1)


def test_a_rank_that_hangs_gives_up_before_the_test_does(impatient: RankPool) -> None:
    begun = time.monotonic()
    first, second = impatient.outcomes(2, hang_one, 1)
    assert time.monotonic() - begun < CALL_S + MARGIN_S
    assert first == (True, "stale")
    assert second.value.kind == LOST
    assert "in hang_one" in second.value.details


def test_a_rank_that_is_stopped(impatient: RankPool) -> None:
    first, second = impatient.outcomes(2, stop_one, 1)
    assert first == (True, "stale")
    assert second.value.kind == NO_ANSWER


def test_a_rank_that_answers_late(impatient: RankPool) -> None:
    first, second = impatient.outcomes(2, answer_late, CALL_S + MARGIN_S + 0.5)
    assert first == (True, "stale")
    assert second.value.kind == NO_ANSWER


@pytest.mark.usefixtures("processes")
def test_a_result_that_cannot_be_sent(pool: RankPool) -> None:
    with pytest.raises(RankError, match="lambda"):
        pool.run(2, return_what_cannot_be_sent)


def test_a_function_that_cannot_be_sent_does_not_reach_any_rank(pool: RankPool) -> None:
    before = pool.run(2, add_up, 1)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pool.run(2, lambda: None)
    assert pool.run(2, add_up, 1) == before


def test_ranks_that_do_not_all_join() -> None:
    """A rank that is killed before it joins: the others give up by themselves, and the next call works."""
    pool = RankPool(2, deadlines=Deadlines(join_s=3.0, operation_s=1.0, margin_s=3.0, stragglers_s=1.0))
    ((process, _, _),) = pool.run(1, add_up, 1)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(RankError, match="rank 0 ended without an answer"):
        pool.run(2, add_up, 1)
    assert [total for _, _, total in pool.run(2, add_up, 1)] == [3, 3]
    pool.close()


def test_an_answer_to_another_request_is_never_accepted() -> None:
    for number in (6, 8):
        ours, theirs = Pipe()
        theirs.send_bytes(pickle.dumps(Answer(number, Outcome(True, "stale"))))
        with pytest.raises(RankError, match=f"rank 3 answered request {number} instead of request 7"):
            collect({3: ours}, 7, 1.0)


def test_closing_ends_all_processes() -> None:
    pool = RankPool(2)
    processes = [process for process, _, _ in pool.run(2, add_up, 1)]
    pool.close()
    assert not any(is_alive(process) for process in processes)
    assert [total for _, _, total in pool.run(2, add_up, 1)] == [3, 3]
    pool.close()
