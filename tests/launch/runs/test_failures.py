"""The one error of a run in which several ranks failed."""

import msgspec
import pytest

from penstock.errors import InputError, PeerLost, RunError, StatusTable
from penstock.launch.runs.events import Exited, Failed, failed_event
from penstock.launch.runs.failures import find_failure
from penstock.launch.runs.rank_state import RankState, Run
from penstock.launch.runs.torchrun import torchrun_exits

LOST = Failed("PeerLost", "rank 0, step 4: the connection is lost", hint="See the other.", is_peer_lost=True)
LATE = Failed("RuntimeTimeout", "rank 1, step 4: timed out", hint="See.")
WRONG = Failed("InputError", "no", where="gpt.py, line 3", hint="Fix the script.", is_input=True)


def _run(
    *failed: Failed | None, codes: tuple[int, ...] = (), log: str = "", code: int = 1, stopped: tuple[int, ...] = ()
) -> Run:
    ranks = [RankState(rank, rank, 100 + rank, step=4, failed=item) for rank, item in enumerate(failed)]
    for rank, exit_code in enumerate(codes):
        ranks[rank].exited = Exited(exit_code, was_stopped=rank in stopped)
    return Run(ranks, exit_code=code, log=log)


def test_invalid_input_comes_first() -> None:
    error = find_failure(_run(LOST, WRONG, codes=(1, 2)))
    assert isinstance(error, InputError)
    assert (error.what, error.where, error.hint) == ("no", "gpt.py, line 3", "Fix the script.")


def test_a_killed_rank_comes_before_those_that_miss_it() -> None:
    error = find_failure(_run(LOST, None, None, codes=(1, -9, -15), stopped=(2,)))
    assert isinstance(error, RunError)
    assert error.what.startswith("rank 1 was killed by SIGKILL at step 4")
    assert "memory" in error.hint


def test_of_several_lost_ranks_the_first_to_exit_is_named() -> None:
    run = _run(None, None, None, codes=(-9, -11, -9))
    run.first_exited = 1
    error = find_failure(run)
    assert error is not None
    assert error.what.startswith("rank 1 was killed by SIGSEGV")


def test_a_rank_that_exits_without_a_report_shows_its_output() -> None:
    run = _run(None, codes=(3,))
    run.ranks[0].output = "first\nModuleNotFoundError: no module\n"
    error = find_failure(run)
    assert error is not None
    assert error.what.startswith("rank 0 exited with code 3 at step 4")
    assert error.what.endswith("first\n  ModuleNotFoundError: no module")


def test_a_lost_rank_without_an_exit_status() -> None:
    error = find_failure(_run(LOST, None))
    assert error is not None
    assert error.what.startswith("rank 1 exited at step 4 without an error message")


def test_a_rank_that_only_lost_its_connection_comes_last() -> None:
    error = find_failure(_run(LOST, LATE, codes=(1, 1)))
    assert error is not None
    assert error.what == "rank 1, step 4: timed out"


@pytest.mark.parametrize("code", [0, 1])
def test_ranks_without_events(code: int) -> None:
    error = find_failure(_run(None, None, log="first\nlast words", code=code))
    if code == 0:
        assert error is None
    else:
        assert isinstance(error, RunError)
        assert error.what.endswith("first\n  last words")


def test_the_status_table_is_a_field_of_the_event() -> None:
    error = PeerLost("rank 0: the connection is lost", hint="See.")
    error.add_note("Rank 1 failed first.\nSee there.")
    assert failed_event(error).status_table == ""
    error.add_note(StatusTable("Last status of each rank:\n  ..."))
    event = failed_event(error)
    assert (event.what, event.hint, event.is_peer_lost) == (error.what, error.hint, True)
    assert event.status_table.startswith("Last status of each")
    # An event must survive its file: msgspec encodes no subclass of str.
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Failed) == event
    failure = find_failure(_run(event, codes=(1,)))
    assert failure is not None
    assert str(failure).endswith("each rank:\n  ...")


def test_exit_statuses_of_torchruns_report() -> None:
    report = "".join(
        f"[{rank}]:\n  time      : now\n  host      : here\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: 12)\n"
        for rank, code in ((0, 1), (3, -9), (4, -15))
    )
    assert torchrun_exits(report) == {0: Exited(1), 3: Exited(-9), 4: Exited(-15, was_stopped=True)}
