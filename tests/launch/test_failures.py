"""Of many failures the one that is told."""

import pytest

from penstock.errors import InputError, RunError
from penstock.launch.events import Failed
from penstock.launch.failures import failure_of
from penstock.launch.process import RankState, Run

LOST = Failed("PeerLost", "rank 0, step 4: the connection is lost\n  See the other.", is_input=False)
LATE = Failed("RuntimeTimeout", "rank 1, step 4: nothing came\n  See.", is_input=False)
WRONG = Failed("InputError", "gpt.py, line 3: no\n  Mend the script.", is_input=True)


def _run(*failed: Failed | None, log: str = "", code: int = 1) -> Run:
    ranks = [RankState(rank, rank, 100 + rank, step=4, failed=item) for rank, item in enumerate(failed)]
    return Run(ranks, exit_code=code, log=log)


def _report(*codes: int) -> str:
    """As torchrun writes it."""
    return "".join(
        f"[{rank}]:\n  time      : now\n  host      : here\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: 12)\n"
        for rank, code in enumerate(codes)
    )


def test_input_comes_first() -> None:
    found = failure_of(_run(LOST, WRONG, log=_report(1, 2)))
    assert isinstance(found, InputError)
    assert (found.what, found.hint) == ("gpt.py, line 3: no", "Mend the script.")


def test_a_killed_rank_comes_before_those_that_miss_it() -> None:
    found = failure_of(_run(LOST, None, None, log=_report(1, -9, -15)))
    assert isinstance(found, RunError)
    assert found.what.startswith("rank 1 was ended by SIGKILL, at step 4")
    assert "memory" in found.hint


def test_a_lost_rank_without_torchruns_word() -> None:
    found = failure_of(_run(LOST, None))
    assert found is not None
    assert found.what.startswith("rank 1 ended without a word, at step 4")


def test_a_rank_that_waited_in_vain_says_less() -> None:
    found = failure_of(_run(LOST, LATE, log=_report(1, 1)))
    assert found is not None
    assert found.what == "rank 1, step 4: nothing came"


@pytest.mark.parametrize("code", [0, 1])
def test_nothing_told(code: int) -> None:
    found = failure_of(_run(None, None, log="first\nlast words", code=code))
    if code == 0:
        assert found is None
    else:
        assert isinstance(found, RunError)
        assert found.what.endswith("first\n  last words")
