"""Checkpoints that are written while training goes on, as functions that ranks can run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from penstock.runtime.pipeline import Pipeline
from penstock.runtime.state.checkpoints.directory import find_checkpoints
from penstock.runtime.state.checkpoints.torch_files import StateWriter, Written
from tests.support.runtime.checkpoint_runs import NUM_ROWS, SAVED_PLAN, copy_parameters, small_files
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import make


@contextmanager
def slow_disk() -> Iterator[threading.Event]:
    """Writes of this rank wait until the event is set."""
    is_allowed, write = threading.Event(), StateWriter.write

    def wait_and_write(writer: StateWriter) -> Written:
        assert is_allowed.wait(60)
        return write(writer)

    with patch.object(StateWriter, "write", wait_and_write):
        yield is_allowed


def _step(pipe: Pipeline, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    pipe.step(*KINDS["mlp"].batch(pipe._step, NUM_ROWS))
    optimizer.step()


def save_beside_training(folder: str, blocking_folder: str) -> tuple[list[str], dict[str, Tensor], dict[str, Tensor]]:
    """Start a save after one step, and train on while a disk is slow. Save the same state in another folder at once.

    Returns:
        What could be seen of the save after each step, and the parameters that each checkpoint restores.
    """
    pipe = make("mlp", SAVED_PLAN, timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-2)
    _step(pipe, optimizer)
    pipe.save(blocking_folder, extra={"seen": 1})
    seen = []
    with slow_disk() if dist.get_rank() == 1 else nullcontext() as is_allowed:
        pipe.start_save(folder, extra={"seen": 1})
        for _ in range(3):
            _step(pipe, optimizer)
            seen.append(f"{pipe.finish_save(wait=False)}, {len(find_checkpoints(Path(folder)))}")
        if is_allowed is not None:
            is_allowed.set()
        path = pipe.finish_save()
    seen.append(f"{path and path.name}, {pipe.finish_save()}")
    restored = []
    for one in (folder, blocking_folder):
        loaded = pipe.load(one)
        assert loaded.extra == {"seen": 1}
        assert loaded.step == 1
        restored.append(copy_parameters(pipe._model))
    pipe.close()
    return seen, restored[0], restored[1]


def save_in_a_row(folder: str, last: str) -> list[str]:
    """Start three saves, each before the last is finished, and finish the third by another call."""
    pipe = make("mlp", SAVED_PLAN, timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    for _ in range(3):
        _step(pipe, optimizer)
        pipe.start_save(folder, keep=None)
    if last == "load":
        assert pipe.load(folder).step == 3
    elif last == "save":
        pipe.save(folder, keep=None)
    pipe.close()
    return [item.path.name for item in find_checkpoints(Path(folder))]


def fail_to_write(folder: str, limit: int) -> str:
    """Start a save that rank 1 cannot write; then save again."""
    pipe = make("mlp", SAVED_PLAN, timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-2)
    _step(pipe, optimizer)
    pipe.save(folder)
    _step(pipe, optimizer)
    message = ""
    with small_files(limit if dist.get_rank() == 1 else None):
        pipe.start_save(folder)
        try:
            pipe.finish_save()
        except ValueError as error:
            message = f"{type(error).__name__}: {error}"
    found = [item.path.name for item in find_checkpoints(Path(folder))]
    _step(pipe, optimizer)
    pipe.start_save(folder)
    pipe.close()
    return f"{message} / {found} / {[item.path.name for item in find_checkpoints(Path(folder))]}"
