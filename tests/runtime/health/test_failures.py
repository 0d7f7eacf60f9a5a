"""When something goes wrong on the way, every rank says what, where, and with whom."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.runtime.failing_ranks import (
    await_sigterm,
    change_graph,
    change_shapes,
    construct_late,
    delay_forward,
    diverge,
    exit_between_steps,
    hang_in_forward,
    lose_rank,
    pass_wrong_dtype,
    start_step_late,
    stop_store_host,
    sync_late,
)
from tests.support.runtime.forkserver import RankProcess, Start
from tests.support.runtime.rank_pool import RankPool


def test_a_rank_that_does_not_answer_in_time(rank_pool: RankPool) -> None:
    (_, _), (well, second) = rank_pool.outcomes(2, delay_forward)
    assert not well
    assert second[0] == "RuntimeTimeout"
    assert "rank 1 (d1), step 0, 1RECV_F0@d0 (micro-batch 0, with rank 0): timed out after 1 s" in second[1]


def test_a_rank_that_does_not_begin_its_step_in_time(rank_pool: RankPool) -> None:
    (well, first), (_, _) = rank_pool.outcomes(2, start_step_late)
    assert not well
    assert first[0] == "RuntimeTimeout"
    assert "rank 0 (d0), step 0, 0RECV_B0@d1 (micro-batch 0, with rank 1): timed out after 1 s" in first[1]


def test_a_rank_that_does_not_make_its_pipeline_in_time(rank_pool: RankPool) -> None:
    begun = time.monotonic()
    (well, first), (_, _) = rank_pool.outcomes(2, construct_late)
    assert not well
    assert first[0] == "RuntimeTimeout"
    assert first[1].startswith("rank 0, compares its device with the plan: timed out")
    assert time.monotonic() - begun < 30


def test_a_rank_that_does_not_come_to_a_meeting_in_time(rank_pool: RankPool) -> None:
    (well, first), (_, _) = rank_pool.outcomes(2, sync_late)
    assert not well
    assert first[0] == "RuntimeTimeout"
    assert "rank 0 (d0), step 0, 0F0@d1 (micro-batch 0, with rank 1): timed out after 1 s" in first[1]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def stderr_of_failed(processes: list[RankProcess], timeout_s: float = 60) -> list[str]:
    """What each has told; all must have failed."""
    assert [process.wait(timeout_s) for process in processes] == [1] * len(processes)
    return [process.stderr() for process in processes]


@pytest.mark.parametrize(
    ("where", "rank", "told"),
    [
        ("block", 1, "step 1, rows 0 to 2: the output of layer 2 (2) is not finite"),
        ("loss", 1, "step 0, rows 0 to 2: the loss is not finite, but the output of the last layer (3) is"),
        ("batch", 0, "step 0, rows 3 to 5: the inputs are not finite"),
        ("step", 0, "its parameter '0.weight' is not finite either, so the previous step is the cause"),
    ],
)
def test_where_numbers_stop_being_finite(start: Start, where: str, rank: int, told: str) -> None:
    texts = stderr_of_failed(start(partial(diverge, where), 2))
    assert "penstock.errors.RunError: " in texts[rank]
    assert told in texts[rank]
    assert "Last status of each rank:" in texts[rank]


def test_a_shape_that_changes(start: Start) -> None:
    first, second = stderr_of_failed(start(change_shapes, 2))
    action = "rank 0 (d0), step 1, 0SEND_F0@d1 (micro-batch 0, with rank 1)"
    assert f"MismatchError: {action}: expected a tensor of shape" in first
    assert "of shape (2, 3) and type torch.float32 as in earlier messages, got shape (2, 6)" in first
    assert "PeerLost: rank 1 (d1), step 1, 1RECV_F0@d0 (micro-batch 0, with rank 0)" in second


def test_a_block_that_fails_is_named(start: Start) -> None:
    first, second = stderr_of_failed(start(pass_wrong_dtype, 2))
    assert "In the forward of layer 2 (2), step 0, rows 0 to 1." in second
    assert "must have the same dtype, but got Double and Float" in second
    assert "PeerLost: rank 0 (d0), step 0" in first


def test_a_forward_that_takes_another_way_than_before(start: Start) -> None:
    first, second = stderr_of_failed(start(change_graph, 2))
    told = "MismatchError: rank 0 (d0), step 1, 1F0 (micro-batch 0): the autograd graph of the stage differs"
    assert told in first
    assert "PeerLost: rank 1 (d1), step 1" in second


def test_when_a_rank_ends_the_others_end_soon(start: Start) -> None:
    first_process, second_process = start(lose_rank, 2)
    assert second_process.wait(60) == 3
    assert first_process.wait(10) == 1
    told = first_process.stderr().replace("[rank0]: ", "")
    error, table = told.split("penstock.errors.PeerLost: ")[1].split("Last status of each rank:")
    assert error.startswith("rank 0 (d0), step 0, ")
    assert "(micro-batch " in error
    assert "with rank 1): the connection is lost" in error
    _, first, second = table.strip().splitlines()[:3]
    assert first.split()[:4] == ["0", "d0", "0", "waiting:"]
    assert second.split()[:2] == ["1", "d1"]
    assert "exited or stopped" in second
    assert "exited or stopped" not in first


def test_torchrun_ends_nobody_before_it_has_said_what_it_misses(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.support.runtime.failing_ranks import lose_rank_of_torchrun\nlose_rank_of_torchrun()\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    begun = time.monotonic()
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=120, check=False, env=environment())
    assert time.monotonic() - begun < 60
    assert done.returncode == 1
    assert "penstock.errors.PeerLost: rank 0 (d0), step 0, " in done.stderr
    assert "with rank 1): the connection is lost" in done.stderr
    assert done.stderr.count("Last status of each rank:") == 1


def test_a_rank_that_is_told_to_end_says_what_it_did(start: Start) -> None:
    (process,) = start(await_sigterm, 1)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert "rank 0 (d0), step 0, running 0F0: received SIGTERM" in process.stderr()


@pytest.mark.parametrize("then", ["step", "timeline", "clip"])
def test_a_rank_that_has_ended_between_steps(start: Start, then: str) -> None:
    first, second = start(partial(exit_between_steps, then), 2)
    assert (first.wait(30), second.wait(30)) == (1, 3)
    told = first.stderr()
    assert "penstock.errors.PeerLost: rank 0" in told
    assert "the connection is lost" in told
    assert "Last status of each rank:" in told


def test_a_rank_that_is_stuck_is_ended_too(start: Start) -> None:
    processes = start(hang_in_forward, 3)
    begun = time.monotonic()
    while all(process.wait(0) is None for process in processes):
        assert time.monotonic() - begun < 60
        time.sleep(0.1)
    ended = time.monotonic()
    told = stderr_of_failed(processes, timeout_s=10)
    assert time.monotonic() - ended < 10
    tables = [text.split("Last status of each rank:")[1] for text in told if "Last status of each rank:" in text]
    assert len(tables) == 1
    rows = [line.replace("[rank0]: ", "").replace("[rank2]: ", "").split() for line in tables[0].strip().splitlines()]
    assert rows[2][:5] == ["1", "d1", "0", "running", "1F0"]
    assert rows[3][:5] == ["2", "d2", "0", "waiting:", "2RECV_F0@d1"]
    assert "rank 1 (d1), step 0, running 1F0: exiting, because rank" in told[1]


def test_a_rank_that_is_stopped_and_keeps_the_store(start: Start) -> None:
    """Who waits for it names it, and ends though nobody can be asked any more."""
    processes = start(stop_store_host, 2)
    code = processes[1].wait(60)
    assert code == 1
    told = processes[1].stderr()
    assert "RuntimeTimeout: rank 1 (d1), step 1, 1RECV_F0@d0 (micro-batch 0, with rank 0): timed out" in told
    assert processes[0].wait(0) is None
