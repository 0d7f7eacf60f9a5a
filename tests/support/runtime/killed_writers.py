"""Ranks that save after every step, and are killed at any moment."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from penstock.runtime.state.checkpoints.directory import choose, find_checkpoints
from penstock.runtime.state.checkpoints.store import DEFAULT_KEEP
from penstock.runtime.state.checkpoints.torch_files import StoredCheckpoint
from tests.support.runtime.checkpoint_runs import acknowledged, save_for_ever, single_process_steps
from tests.support.runtime.forkserver import warm_context

START_S = 60.0


def kill_writers(folder: Path, num_kills: int, rng: random.Random) -> Iterator[int]:
    """Start two ranks that resume, train and save, and kill both; again and again.

    After each kill, the last checkpoint must be complete, at least as new as the last save that has returned, and have
    the parameters of its step.

    Args:
        folder: The checkpoint directory, which exists.
        num_kills: How often.
        rng: Draws the moments.

    Yields:
        How many kills so far left an unfinished checkpoint.
    """
    expected = single_process_steps(8)
    left, longest_s, last_number = 0, 0.4, 0
    for number in range(num_kills):
        store_file = str(folder.parent / f"{folder.name}-meeting{number}")
        _run_and_kill(folder, store_file, expected, rng.uniform(0.02, longest_s))
        left += any(path.name.endswith(".part") for path in folder.iterdir())
        saved_number = acknowledged(store_file)
        if found := find_checkpoints(folder):
            newest, _ = choose(folder, None)
            # A save that has returned survives the kill: the newest checkpoint is at least as new.
            if saved_number.exists():
                last_number = max(last_number, int(saved_number.read_text()))
            assert newest.record.number >= last_number
            last_number = newest.record.number
            assert len(found) <= DEFAULT_KEEP + 2, "old checkpoints are removed"
            saved = StoredCheckpoint(newest.path).read(lambda path: path[0] == "model")["model"]
            assert all(torch.equal(saved[name], item) for name, item in expected[newest.record.step].items())
        else:
            assert not last_number, "a complete checkpoint is gone"
            assert not saved_number.exists(), "a complete checkpoint is gone"
            # A busy machine takes longer to complete one.
            longest_s = min(2 * longest_s, 10.0)
        yield left


def _run_and_kill(folder: Path, store_file: str, expected: dict[int, dict[str, torch.Tensor]], seconds: float) -> None:
    context = warm_context()
    ranks = [context.Process(target=save_for_ever, args=(str(folder), store_file, r, expected)) for r in range(2)]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + START_S
    while not all(Path(f"{store_file}.{rank}.begun").exists() for rank in range(2)):
        assert time.monotonic() < deadline
        assert all(process.is_alive() for process in ranks), "a writer failed, or loaded other numbers than were saved"
        time.sleep(0.002)
    time.sleep(seconds)
    for process in ranks:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    for process in ranks:
        process.join(20)
        assert process.exitcode == -signal.SIGKILL
