"""A script whose model computes its own loss: plan, train and check, with labels that are ignored."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.small_training import write_problem

Run = Callable[..., "tuple[int, str, str]"]

SCRIPT = """
from collections import UserDict
import torch
from torch import nn
from torch.nn import functional as F

class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 16)

    def forward(self, batch):
        return self.embed(batch["input_ids"]) + batch["positions"], batch["labels"]

class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, payload):
        return torch.tanh(self.linear(payload[0])), payload[1]

class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 2)

    def forward(self, payload):
        logits, labels = self.head(payload[0]), payload[1]
        LOSS

def make_batch(num_rows):
    words = torch.randint(1, 7, (num_rows, 5))
    labels = (words % 2).masked_fill(torch.rand(num_rows, 5) < 0.5, IGNORED)
    labels[:, -1] = 1
    return UserDict(input_ids=words, labels=labels, positions=torch.ones(1, 5, 1), use_cache=False)

def make_model():
    torch.manual_seed(0)
    return nn.Sequential(First(), nn.Identity(), nn.Identity(), Middle(), nn.Identity(), Last()), make_batch(4)

def make_batches(num_rows):
    while True:
        yield make_batch(num_rows)

def make_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.5)
"""
SHIFTED = "return {'loss': F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), 'logits': logits}"
PADDED = "return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own")
    write_problem(path)
    return path


def write(folder: Path, loss: str, ignored: int) -> str:
    path = folder / "script.py"
    path.write_text(SCRIPT.replace("LOSS", loss).replace("IGNORED", str(ignored)))
    return str(path)


def test_train_and_check(run: Run, folder: Path) -> None:
    script = write(folder, SHIFTED, -100)
    code, out, err = run("check", str(folder / "plan.json"), "--numerics", script, "--json")
    assert code == 0, out + err
    numerics = json.loads(out)["numerics"]
    assert numerics["holds"]
    assert any(
        "the loss is a mean over [0]['labels'] that are not -100" in text for text in numerics["sums_in_another_order"]
    )


def test_a_loss_that_is_neither_mean_is_refused(run: Run, folder: Path) -> None:
    script = write(folder, PADDED, 0)
    for words in (("train", script, "--plan", str(folder / "plan.json"), "--steps", "2"),
                  ("check", str(folder / "plan.json"), "--numerics", script)):  # fmt: skip
        code, _, err = run(*words)
        assert code == 2
        assert "the loss of a micro-batch is not the mean over its rows" in err
        assert "Pass a loss function of the model's output that returns (sum, count)" in err


def test_profile(run: Run, folder: Path) -> None:
    code, out, err = run("profile", write(folder, SHIFTED, -100), "--seconds", "0", "-b", "2,4", "--json")
    assert code == 0, err
    assert len(json.loads(out)["units"]) == 6
