"""Block names of a profile, and checkpoints of other scripts."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import penstock
from penstock.errors import InputError
from penstock.launch.model_script import ModelSpec
from penstock.launch.ranks.checkpoints import Checkpoints
from penstock.launch.ranks.train import _block_names
from penstock.launch.train_options import TrainOptions
from penstock.model.blocks import find_blocks
from penstock.runtime import state
from penstock.runtime.state.checkpoint import LoadedCheckpoint


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
    monkeypatch.setattr(state, "find_checkpoints", lambda _: ["one"])
    trainer = SimpleNamespace(
        load=lambda _: LoadedCheckpoint(step=3, extra=None, path=tmp_path / "step-00000003", seed=0)
    )
    options = TrainOptions("gpt.py", "plan.json", checkpoint=str(tmp_path))
    with pytest.raises(InputError, match="this checkpoint was not written by penstock train"):
        Checkpoints(trainer, None, options, lambda _: None).resume()
