"""Which of several ranks that ended is named as the cause."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dist import LastStatus, Phase
from penstock.launch.runs.events import Exited, Failed
from penstock.launch.runs.failures import find_failure
from penstock.launch.runs.first_cause import find_first_cause, is_certain
from penstock.launch.runs.rank_state import RankState, Run
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

LOST = Failed("PeerLost", "rank 0, step 4: the connection is lost", is_peer_lost=True)
LATE = Failed("RuntimeTimeout", "rank 0 (d0), step 4, 0RECV_B0@d1: timed out after 15 s", is_timeout=True)
OWN = Failed("RunError", "no")


@pytest.fixture(autouse=True)
def _is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")


def status(
    phase: Phase = Phase.STEP,
    step: int = 4,
    action: str = "F0",
    *,
    waits: bool = False,
    for_s: float = 15.0,
    failed_s: float | None = None,
) -> LastStatus:
    return LastStatus(phase, step, action, waits, for_s, "d9", failed_s)


def state(rank: int, **values: object) -> RankState:
    values = {"host": "here", "step": 4, "status": status(), **values}
    return RankState(rank, **values)  # type: ignore[arg-type]


def named(*ranks: RankState) -> int:
    cause = find_first_cause(ranks)
    assert cause is not None
    return cause.rank


def message(*ranks: RankState) -> str:
    return str(find_failure(Run(list(ranks), exit_code=1, memory_kills=0)))


def test_the_earlier_of_two_ranks_that_failed_by_themselves() -> None:
    early, late = status(failed_s=10.0), status(failed_s=12.0)
    assert named(state(0, failed=OWN, status=late), state(1, failed=OWN, status=early)) == 1
    # A rank that crashes because another one has failed, and the other way round.
    crash = Exited(-6, at_s=11.0)
    assert named(state(0, exited=crash), state(1, failed=OWN, status=early)) == 1
    assert named(state(0, exited=crash), state(1, failed=OWN, status=late)) == 0


def test_ranks_that_end_because_of_others_are_not_named() -> None:
    stopped = Exited(-9, was_stopped=True, at_s=1.0)
    assert named(state(0, exited=stopped), state(1, failed=LOST), state(2, exited=Exited(0, at_s=9.0))) == 2


def test_a_stopped_rank() -> None:
    ranks = state(0, failed=LATE, status=status(waits=True)), state(1, is_stopped=True, exited=Exited(-9, True))
    assert named(*ranks) == 1
    text = message(*ranks)
    assert text.startswith("rank 1 was stopped by a signal such as SIGSTOP at step 4, in F0 (device d9, host here); ")
    assert "0RECV_B0@d1: timed out after 15 s" in text


def test_the_rank_that_others_wait_for() -> None:
    waiting = status(waits=True)
    ranks = [state(0, failed=LATE, status=waiting), state(1, status=waiting), state(2), state(3, status=waiting)]
    assert named(*ranks) == 2
    assert message(*ranks).startswith(
        "rank 2 did not answer for 15.0 s at step 4, in F0 (device d9, host here); rank 0"
    )
    # Behind the others comes before in the same step.
    ranks[3] = state(3, status=status(step=3))
    assert named(*ranks) == 3
    ranks[1] = state(1, status=status(Phase.MAKING, -1, ""))
    assert named(*ranks) == 1
    assert "while making the pipeline" in message(*ranks)
    # Who has finished is waited for by nobody.
    assert named(state(0, failed=LATE, status=waiting), state(1, is_done=True), state(2, status=waiting)) == 0


def test_what_a_killed_rank_did() -> None:
    text = message(state(0, failed=LOST), state(1, exited=Exited(-9), status=status(Phase.SAVE, action="")))
    first, hint, title, *table = text.splitlines()
    place = "while saving after step 4 (device d9, host here)"
    assert first == f"rank 1 was killed by SIGKILL {place}; all ranks were stopped"
    assert "not killed a process for lack of memory" in hint
    assert title == "Last status of each rank:"
    assert table[1].split() == ["0", "here", "d9", "step", "4", "F0", "15.0", "s", "PeerLost"]
    assert table[2].endswith("failed first: SIGKILL")


def test_invalid_input_of_one_rank() -> None:
    wrong = Failed("InputError", "ValueError: no", where="a.py, line 3", hint="Fix the script.", is_input=True)
    expected = "a.py, line 3: ValueError: no\n  Fix the script."
    assert message(state(0, failed=wrong), state(1, failed=wrong)) == expected
    place = "at step 4, in F0 (device d9, host here)"
    assert message(state(0, failed=LOST), state(1, failed=wrong)) == f"{expected}\n  Rank 1 failed first, {place}."


def test_memory() -> None:
    text = message(
        state(0, failed=Failed("MemoryError", "a rank ran out of memory", detail="no")), state(1, failed=LOST)
    )
    assert text.startswith("rank 0 ran out of memory at step 4, in F0 (device d9, host here): no")
    run = Run([state(0, exited=Exited(-9))], exit_code=-9, memory_kills=2)
    assert "killed a process of this host for lack of memory" in str(find_failure(run))


def test_a_rank_of_another_host() -> None:
    """How many processes the kernel of that host has killed is not known here."""
    text = message(state(0, failed=LOST), state(1, exited=Exited(-9), host="there"))
    assert "(device d9, host there)" in text
    assert "The host may be out of memory: see its system log." in text


def test_a_run_that_was_interrupted_has_no_failure() -> None:
    assert find_failure(Run([state(0, exited=Exited(-9, True))], exit_code=-9, was_stopped=True)) is None


@pytest.mark.parametrize("failed", [LOST, LATE])
def test_nothing_is_certain_while_ranks_name_each_other(failed: Failed) -> None:
    assert not is_certain([state(0, failed=failed), state(1)])
    assert is_certain([state(0, failed=failed), state(1, failed=OWN)])


@reaches(killed=0.1, wrong=0.1, hanging=0.1)
@examples(200)
@given(st.data())
def test_the_culprit_of_any_run_is_found(data: st.DataObject) -> None:
    """One rank fails at some time; the others notice it later, in any order, or are ended by the launcher."""
    num_ranks = data.draw(st.integers(2, 6))
    culprit = data.draw(st.integers(0, num_ranks - 1))
    how = data.draw(st.sampled_from(["killed", "wrong", "hanging"]))
    reach(how)
    ranks = []
    for rank in range(num_ranks):
        later_s = 100.0 + data.draw(st.floats(0.001, 9.0))
        notices = data.draw(st.sampled_from([LATE if how == "hanging" else LOST, None]))
        ranks.append(
            state(rank, failed=notices, status=status(waits=True, failed_s=later_s if notices else None))
            if data.draw(st.booleans()) or how == "hanging"
            else state(rank, failed=notices, exited=Exited(-9, was_stopped=True, at_s=later_s))
        )
    if how == "killed":
        code = data.draw(st.sampled_from([-9, -11, 0, 7]))
        ranks[culprit] = state(culprit, exited=Exited(code, at_s=100.0))
    elif how == "wrong":
        ranks[culprit] = state(culprit, failed=OWN, exited=Exited(1, at_s=102.0), status=status(failed_s=100.0))
    else:
        ranks[culprit] = state(culprit)
        other = (culprit + 1) % num_ranks
        ranks[other] = replace(ranks[other], failed=LATE)
    assert named(*ranks) == culprit
    assert f"rank {culprit} " in message(*ranks).lower() or how == "wrong"
