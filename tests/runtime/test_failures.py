"""When something goes wrong on the way, every rank says what, where, and with whom."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.users import change_shapes, wait_too_long
from runtime.world import World, leave


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


def test_a_shape_that_changes(pair: World) -> None:
    pair.start(2, change_shapes)
    (_, first), (_, second) = pair.outcomes(2)
    assert first[0] == "MismatchError"
    assert "rank 0 (d0), step 1, 0SEND_F0@d1 (micro-batch 0, with rank 1): a tensor of shape (2, 3)" in first[1]
    assert "now one of shape (2, 6)" in first[1]
    assert second[0] in ("RuntimeTimeout", "PeerLost")
    assert "rank 1 (d1), step 1, 1RECV_F0@d0 (micro-batch 0, with rank 0)" in second[1]


def test_a_rank_that_does_not_answer_in_time(pair: World) -> None:
    pair.start(2, wait_too_long)
    (_, _), (well, second) = pair.outcomes(2)
    assert not well
    assert second[0] == "RuntimeTimeout"
    assert "rank 1 (d1), step 0, 1RECV_F0@d0 (micro-batch 0, with rank 0): nothing came of it within 1 s" in second[1]


def test_when_a_rank_ends_the_others_end_soon(tmp_path: Path) -> None:
    code = "import sys; from runtime.users import lose_a_rank; lose_a_rank(sys.argv[1], int(sys.argv[2]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "meeting"), str(rank)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    assert processes[1].wait(60) == 3
    ended = time.monotonic()
    told = processes[0].communicate(timeout=10)[1]
    assert time.monotonic() - ended < 10
    assert processes[0].returncode == 1
    processes[1].communicate()
    last = told.strip().splitlines()[-2]
    assert "penstock.errors.PeerLost: rank 0 (d0), step 0, " in last
    assert "(micro-batch " in last
    assert "with rank 1): the connection is lost" in last
