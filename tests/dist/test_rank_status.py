"""What a rank did last, read from outside after any end."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from penstock.dist import rank_status as module
from penstock.dist.failures import translate_errors, wait_for
from penstock.dist.rank_status import (
    NO_ACTION,
    Phase,
    StatusBoard,
    open_status_board,
    read_status_board,
    status_board,
)
from penstock.errors import RuntimeTimeout


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusBoard:
    monkeypatch.setattr(module, "_board", status_board())
    open_status_board(tmp_path, 1)
    return status_board()


def test_it_outlives_a_kill(tmp_path: Path) -> None:
    pid = os.fork()
    if not pid:
        open_status_board(tmp_path, 3)
        status_board().set_program("h0.d1", ["F0", "B0"])
        status_board().enter_phase(Phase.STEP, 7)
        status_board().begin_action(1)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    status = read_status_board(tmp_path, 3)
    assert status is not None
    assert (status.phase, status.step, status.action, status.device) == (Phase.STEP, 7, "B0", "h0.d1")
    assert not status.is_waiting
    assert status.when == "at step 7"
    assert 0 <= status.for_s < 60
    assert read_status_board(tmp_path, 0) is None


def test_phases_actions_and_waits(tmp_path: Path, board: StatusBoard) -> None:
    def read() -> tuple[str, str, bool]:
        status = read_status_board(tmp_path, 1)
        assert status is not None
        return status.when, status.action, status.is_waiting

    assert read() == ("in start-up", "", False)
    board.enter_phase(Phase.START_UP, text="running the script")
    assert read() == ("in start-up", "running the script", False)
    # Its own number, which every description begins with, is known already.
    with translate_errors(lambda: "rank 1, joining"), board.waiting(lambda: "inside"):
        assert read() == ("in start-up", "joining", True)
    assert read() == ("in start-up", "", False)
    board.enter_phase(Phase.MAKING)
    assert read()[0] == "while making the pipeline"
    board.set_program("d1", ["F0", "F1"])
    assert board.positions(["F1", "other", "F0"]) == [1, NO_ACTION, 0]
    board.enter_phase(Phase.STEP, 4)
    board.begin_action(1)
    board.begin_wait(lambda: "never described in a step")
    assert read() == ("at step 4", "F1", True)
    board.begin_action(NO_ACTION)
    assert read() == ("at step 4", "", False)
    board.enter_phase(Phase.SAVE)
    assert read()[0] == "while saving after step 4"
    board.enter_phase(Phase.SHUTDOWN)
    assert read()[0] == "in shutdown"


class Late:
    def wait(self, _timeout: object) -> None:
        raise RuntimeError("Timed out")


def test_a_wait_that_failed_is_the_last_that_the_rank_did(tmp_path: Path, board: StatusBoard) -> None:
    with pytest.raises(RuntimeTimeout):
        wait_for(Late(), 1.0, lambda: "rank 1, waiting for rank 0")
    status = read_status_board(tmp_path, 1)
    assert status is not None
    assert (status.is_waiting, status.action, status.failed_s) == (True, "waiting for rank 0", None)
    before_s = time.monotonic()
    board.note_failure()
    board.note_failure()
    status = read_status_board(tmp_path, 1)
    assert status is not None
    assert status.failed_s is not None
    assert before_s - 1 < status.failed_s <= time.monotonic()


def test_other_threads_wait_for_themselves(tmp_path: Path, board: StatusBoard) -> None:
    """The thread that waits for sends is not the rank."""
    thread = threading.Thread(target=lambda: board.begin_wait(lambda: "a send"))
    thread.start()
    thread.join()
    status = read_status_board(tmp_path, 1)
    assert status is not None
    assert not status.is_waiting


def test_long_text_is_cut(tmp_path: Path, board: StatusBoard) -> None:
    board.enter_phase(Phase.SAVE, 2, "é" * 5000)
    status = read_status_board(tmp_path, 1)
    assert status is not None
    assert status.action.startswith("é" * 400)
    assert len(status.action) <= module.TEXT_BYTES


def test_a_file_that_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "rank-0.status").write_bytes(b"")
    assert read_status_board(tmp_path, 0) is None
