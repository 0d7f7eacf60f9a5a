"""The status table after the death of a rank, and that nothing waits forever for a dead rank."""

import time
from functools import partial

import pytest

from penstock.runtime.health.heartbeat import EXIT_S, GATHER_S, STAY_S, STUCK_S
from penstock.runtime.health.status import BEAT_S, SILENT_S, RankStatus, StatusRecord, format_status_table
from tests.support.runtime.dying_ranks import EXIT_CODE, exit_after_two_heartbeats, exit_before_report
from tests.support.runtime.forkserver import RankProcess, Start

SLACK_S = 10.0
"""For a busy machine."""


def seconds_between_exits(dead: RankProcess, other: RankProcess, limit_s: float) -> float:
    """Wait for the rank that dies, then for the other one; it must exit within the limit."""
    assert dead.wait(60) == EXIT_CODE
    began_s = time.monotonic()
    assert other.wait(limit_s) == 1
    return time.monotonic() - began_s


def test_a_rank_that_is_killed_after_two_heartbeats_is_reported_as_gone(start: Start) -> None:
    survivor, dead = start(exit_after_two_heartbeats, 2)
    seconds_between_exits(dead, survivor, GATHER_S + SLACK_S)
    table = survivor.stderr().replace("[rank0]: ", "").split("Last status of each rank:\n")[1]
    _, first, second = table.splitlines()[:3]
    assert first.split()[:4] == ["0", "d0", "0", "waiting:"]
    assert "exited or stopped" not in first
    assert second.split()[:5] == ["1", "d1", "0", "running", "1F0"]
    assert "exited or stopped since" in second


def test_a_first_failure_that_is_never_reported_does_not_block_a_rank_that_fails_too(start: Start) -> None:
    survivor, dead = start(partial(exit_before_report, is_stuck=False), 2)
    seconds_between_exits(dead, survivor, 2 * GATHER_S + STAY_S + SLACK_S)
    text = survivor.stderr()
    assert "PeerLost: rank 0 (d0), step 0" in text
    assert "Rank 1 failed first. Its error contains the status of all ranks." in text
    # It gave up waiting by itself, before the timer that ends a process without any answer.
    assert "The status of the other ranks is not available." not in text
    assert 2 * GATHER_S + STAY_S < EXIT_S


def test_a_first_failure_that_is_never_reported_does_not_block_a_stuck_rank(start: Start) -> None:
    survivor, dead = start(partial(exit_before_report, is_stuck=True), 2)
    seconds = seconds_between_exits(dead, survivor, BEAT_S + 2 * GATHER_S + STAY_S + STUCK_S + SLACK_S)
    assert seconds > GATHER_S
    assert "rank 0 (d0), step 0, running 0F0: exiting, because rank 1 failed (ValueError: " in survivor.stderr()


@pytest.mark.parametrize("is_final", [False, True])
def test_records_survive_encoding(is_final: bool) -> None:
    record = StatusRecord(RankStatus(3, "running 1F0", 0.25, is_busy=True), 12.5, is_final)
    assert StatusRecord.decode(record.encode()) == record


def test_the_table_tells_silent_ranks_from_final_ones() -> None:
    status = RankStatus(2, "running 1F0", 0.5, is_busy=True)
    now_s = 100.0
    records = [
        StatusRecord(status, now_s - 2 * SILENT_S, False),
        StatusRecord(status, now_s - 2 * SILENT_S, True),
        StatusRecord(status, now_s - SILENT_S / 2, False),
        None,
    ]
    lines = format_status_table(["a", "b", "c", "d"], records, now_s).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "Last status of each rank:",
        "rank device step status for",
        "0 a 2 running 1F0 last heartbeat 3.0 s ago; exited or stopped since",
        "1 b 2 running 1F0 0.5 s",
        "2 c 2 running 1F0 0.5 s",
        "3 d - no heartbeat",
    ]
