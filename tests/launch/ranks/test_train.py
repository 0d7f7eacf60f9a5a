"""Block names of a profile, and checkpoints of other scripts."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import penstock
from penstock.errors import FileError, InputError
from penstock.launch.model_script import ModelSpec
from penstock.launch.ranks.checkpoints import Checkpoints
from penstock.launch.ranks.train import _block_names
from penstock.launch.runs import Event, Noted
from penstock.launch.train_options import TrainOptions
from penstock.model.blocks import find_blocks
from penstock.runtime import state
from penstock.runtime.state.checkpoints.store import LoadedCheckpoint


class Again(nn.Module):
    """Calls one of its blocks twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.first(self.second(self.first(x)))
        return found


def test_a_block_that_is_called_again_has_its_own_name() -> None:
    model, x = Again(), torch.ones(2, 4)
    profile = penstock.profile(
        model, x, torch.sum, blocks=["first", "second", "first"], seconds=0.0, overheads=False, micro_batch_sizes=[2]
    )
    assert [unit.name for unit in profile.units] == ["first", "second", "first (2)"]
    names = _block_names(ModelSpec(model, x, torch.sum), profile)
    assert names == ["first", "second", "first"]
    assert [block.name for block in find_blocks(model, names, x)] == ["first", "second", "first (2)"]


def test_a_checkpoint_of_another_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "has_checkpoints", lambda _: True)
    trainer = SimpleNamespace(
        load=lambda _: LoadedCheckpoint(step=3, extra=None, path=tmp_path / "step-00000003", seed=0)
    )
    options = TrainOptions("gpt.py", "plan.json", checkpoint=str(tmp_path))
    with pytest.raises(InputError, match="this checkpoint was not written by penstock train"):
        Checkpoints(trainer, None, options, lambda _: None).resume()


def test_saves_beside_training_are_finished_when_they_are_written() -> None:
    calls: list[str] = []
    written = iter([None, None, Path("step-2"), Path("step-4")])

    def finish_save(wait: bool = True) -> Path | None:
        calls.append("wait" if wait else "look")
        return next(written)

    trainer = SimpleNamespace(
        start_save=lambda _, extra: calls.append(f"start {extra['num_steps']}"),
        finish_save=finish_save,
        save=lambda _, extra: calls.append(f"save {extra['num_steps']}"),
    )
    options = TrainOptions("gpt.py", "plan.json", steps=6, checkpoint="kept", save_every=2, async_save=True)
    checkpoints = Checkpoints(trainer, None, options, lambda _: None)
    for step in (1, 2, 3, 4):
        checkpoints.after_step(step)
    # At step 4 the second save waits for the first.
    assert calls == ["start 2", "look", "look", "wait", "start 4"]
    checkpoints.finish(5)
    assert calls[5:] == ["wait", "save 5"]


def test_a_save_that_fails() -> None:
    def save(folder: Path, extra: dict[str, int]) -> None:
        raise FileError("rank 1 cannot write: No space left on device", where=str(folder))

    events: list[Event] = []
    trainer = SimpleNamespace(save=save)
    options = TrainOptions("gpt.py", "plan.json", steps=6, checkpoint="kept", save_every=2, on_save_error="continue")
    checkpoints = Checkpoints(trainer, None, options, events.append)
    for step in (1, 2, 3):
        checkpoints.after_step(step)
    assert events == [Noted("warning: no checkpoint after 2 steps: kept: rank 1 cannot write: No space left on device")]
    with pytest.raises(FileError, match="No space left"):
        checkpoints.after_step(6)
    with pytest.raises(FileError, match="No space left"):
        checkpoints.finish(5)
    with pytest.raises(FileError, match="No space left"):
        Checkpoints(trainer, None, replace(options, on_save_error="stop"), events.append).after_step(2)
