"""When something goes wrong on the way, every rank says what, where, and with whom."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.runtime.failing_ranks import (
    another_type,
    another_way,
    change_shapes,
    come_too_late,
    come_too_late_to_make_it,
    explode,
    go_away,
    lose_a_rank,
    meet_too_late,
    stay_stuck,
    stop_the_keeper,
    wait_to_be_ended,
    wait_too_long,
)
from tests.support.runtime.forkserver import Life, Start
from tests.support.runtime.world import World, leave


@pytest.fixture(scope="module")
def ranks() -> Iterator[World]:
    """A world of its own, as it is spoilt afterwards."""
    made = World(2)
    yield made
    made.close()


@pytest.fixture
def pair(ranks: World) -> World:
    """The same, with fresh connections."""
    ranks.run(1, leave)
    return ranks


def test_a_rank_that_does_not_answer_in_time(pair: World) -> None:
    pair.start(2, wait_too_long)
    (_, _), (well, second) = pair.outcomes(2)
    assert not well
    assert second[0] == "RuntimeTimeout"
    assert "rank 1 (d1), step 0, 1RECV_F0@d0 (micro-batch 0, with rank 0): nothing came of it within 1 s" in second[1]


def test_a_rank_that_does_not_begin_its_step_in_time(pair: World) -> None:
    pair.start(2, come_too_late)
    (well, first), (_, _) = pair.outcomes(2)
    assert not well
    assert first[0] == "RuntimeTimeout"
    assert "rank 0 (d0), step 0, 0RECV_B0@d1 (micro-batch 0, with rank 1): nothing came of it within 1 s" in first[1]


def test_a_rank_that_does_not_make_its_pipeline_in_time(pair: World) -> None:
    begun = time.monotonic()
    pair.start(2, come_too_late_to_make_it)
    (well, first), (_, _) = pair.outcomes(2)
    assert not well
    assert first[0] == "RuntimeTimeout"
    assert first[1].startswith("rank 0, makes its pipeline with the other ranks: nothing came of it")
    assert time.monotonic() - begun < 30


def test_a_rank_that_does_not_come_to_a_meeting_in_time(pair: World) -> None:
    pair.start(2, meet_too_late)
    (well, first), (_, _) = pair.outcomes(2)
    assert not well
    assert first[0] == "RuntimeTimeout"
    assert "rank 0 (d0), step 0, 0F0@d1 (micro-batch 0, with rank 1): nothing came of it within 1 s" in first[1]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def last_words(lives: list[Life], timeout_s: float = 60) -> list[str]:
    """What each has told; all must have failed."""
    assert [life.wait(timeout_s) for life in lives] == [1] * len(lives)
    return [life.told() for life in lives]


@pytest.mark.parametrize(
    ("where", "rank", "told"),
    [
        ("block", 1, "step 1, rows 0 to 2: the output of unit 2 (2) is not finite"),
        ("loss", 1, "step 0, rows 0 to 2: the loss is not finite, but the output of the last unit (3) is"),
        ("batch", 0, "step 0, rows 3 to 5: the inputs are not finite"),
        ("step", 0, "its parameter '0.weight' is not finite either, so the step before went wrong"),
    ],
)
def test_where_numbers_stop_being_finite(start: Start, where: str, rank: int, told: str) -> None:
    texts = last_words(start(partial(explode, where), 2))
    assert "penstock.errors.RunError: " in texts[rank]
    assert told in texts[rank]
    assert "What each rank did last:" in texts[rank]


def test_a_shape_that_changes(start: Start) -> None:
    first, second = last_words(start(change_shapes, 2))
    expected = "MismatchError: rank 0 (d0), step 1, 0SEND_F0@d1 (micro-batch 0, with rank 1): a tensor of shape (2, 3)"
    assert expected in first
    assert "now one of shape (2, 6)" in first
    assert "PeerLost: rank 1 (d1), step 1, 1RECV_F0@d0 (micro-batch 0, with rank 0)" in second


def test_a_block_that_fails_is_named(start: Start) -> None:
    first, second = last_words(start(another_type, 2))
    assert "In the forward of unit 2 (2), step 0, rows 0 to 1." in second
    assert "must have the same dtype, but got Double and Float" in second
    assert "PeerLost: rank 0 (d0), step 0" in first


def test_a_forward_that_takes_another_way_than_before(start: Start) -> None:
    first, second = last_words(start(another_way, 2))
    told = "MismatchError: rank 0 (d0), step 1, 1F0 (micro-batch 0): the stage's forward took another way than before"
    assert told in first
    assert "PeerLost: rank 1 (d1), step 1" in second


def test_when_a_rank_ends_the_others_end_soon(start: Start) -> None:
    first_life, second_life = start(lose_a_rank, 2)
    assert second_life.wait(60) == 3
    assert first_life.wait(10) == 1
    told = first_life.told().replace("[rank0]: ", "")
    error, table = told.split("penstock.errors.PeerLost: ")[1].split("What each rank did last:")
    assert error.startswith("rank 0 (d0), step 0, ")
    assert "(micro-batch " in error
    assert "with rank 1): the connection is lost" in error
    _, first, second = table.strip().splitlines()[:3]
    assert first.split()[:4] == ["0", "d0", "0", "waiting:"]
    assert second.split()[:2] == ["1", "d1"]
    assert "ended, or stopped" in second
    assert "ended, or stopped" not in first


def test_torchrun_ends_nobody_before_it_has_said_what_it_misses(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.support.runtime.failing_ranks import lose_a_rank_of_torchrun\nlose_a_rank_of_torchrun()\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    begun = time.monotonic()
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=120, check=False, env=environment())
    assert time.monotonic() - begun < 60
    assert done.returncode == 1
    assert "penstock.errors.PeerLost: rank 0 (d0), step 0, " in done.stderr
    assert "with rank 1): the connection is lost" in done.stderr
    assert done.stderr.count("What each rank did last:") == 1


def test_a_rank_that_is_told_to_end_says_what_it_did(start: Start) -> None:
    (life,) = start(wait_to_be_ended, 1)
    assert life.wait(60) == 128 + signal.SIGTERM
    assert "rank 0 (d0), step 0, doing 0F0: told to end (SIGTERM)" in life.told()


@pytest.mark.parametrize("then", ["step", "timeline", "clip"])
def test_a_rank_that_has_ended_between_steps(start: Start, then: str) -> None:
    first, second = start(partial(go_away, then), 2)
    assert (first.wait(30), second.wait(30)) == (1, 3)
    told = first.told()
    assert "penstock.errors.PeerLost: rank 0" in told
    assert "the connection is lost" in told
    assert "What each rank did last:" in told


def test_a_rank_that_is_stuck_is_ended_too(start: Start) -> None:
    lives = start(stay_stuck, 3)
    begun = time.monotonic()
    while all(life.wait(0) is None for life in lives):
        assert time.monotonic() - begun < 60
        time.sleep(0.1)
    ended = time.monotonic()
    told = last_words(lives, timeout_s=10)
    assert time.monotonic() - ended < 10
    tables = [text.split("What each rank did last:")[1] for text in told if "What each rank did last:" in text]
    assert len(tables) == 1
    rows = [line.replace("[rank0]: ", "").replace("[rank2]: ", "").split() for line in tables[0].strip().splitlines()]
    assert rows[2][:5] == ["1", "d1", "0", "doing", "1F0"]
    assert rows[3][:5] == ["2", "d2", "0", "waiting:", "2RECV_F0@d1"]
    assert "rank 1 (d1), step 0, doing 1F0: ended, as rank" in told[1]


def test_a_rank_that_is_stopped_and_keeps_the_store(start: Start) -> None:
    """Who waits for it names it, and ends though nobody can be asked any more."""
    lives = start(stop_the_keeper, 2)
    code = lives[1].wait(60)
    assert code == 1
    told = lives[1].told()
    assert "RuntimeTimeout: rank 1 (d1), step 1, 1RECV_F0@d0 (micro-batch 0, with rank 0): nothing came of it" in told
    assert lives[0].wait(0) is None
