"""Training on two ranks, one of which is slow: the run changes its plan, and goes on with the same losses."""

import importlib.util
import json
from pathlib import Path

import pytest

from penstock.cluster import load_cluster
from penstock.cluster.toml import write_cluster
from penstock.launch import adaptive_training
from penstock.plan import save_plan
from penstock.planners.api import solve
from penstock.profile import Profile, Sizes, Times, Unit, save_profile
from tests.support.command_line import Run

NUM_STEPS = 70
SCRIPT = """
import os, time, torch
from torch import nn

def pause(rows):
    if "RANK" in os.environ:
        time.sleep(0.001 * rows * (4 if os.environ["RANK"] == "1" else 1))

class Pause(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        pause(x.shape[0])
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        pause(grad.shape[0])
        return grad.clone()

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return Pause.apply(torch.tanh(self.linear(x)))

def make_model():
    torch.manual_seed(0)
    model = nn.Sequential(*[Layer() for _ in range(12)])
    return model, torch.ones(8, 8), lambda output, targets: (output - targets).square().mean(), torch.zeros(8, 8)

def make_batches(num_rows):
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randn(num_rows, 8, generator=generator), torch.zeros(num_rows, 8)
"""


def planned(folder: Path) -> list[str]:
    """Write a script, its profile, and a plan with equal stages for two devices. Returns words of the command."""
    (folder / "model.py").write_text(SCRIPT)
    times = Times(
        kind="cpu-1-thread", micro_batch_size=2, forward_s=2.3e-3, input_grad_s=2.3e-3, weight_grad_s=2e-4, step_s=1e-4
    )
    sizes = Sizes(micro_batch_size=2, cut_bytes=64, saved_bytes=256)
    units = tuple(Unit(name=str(number), parameter_bytes=288, sizes=(sizes,), times=(times,)) for number in range(12))
    profile = Profile(name="pauses", micro_batch_size=2, units=units, input_bytes=64)
    save_profile(profile, folder / "profile.json")
    (folder / "cluster.toml").write_text(write_cluster(load_cluster("2 x cpu-1-thread @ 1 GB/s")))
    cluster = load_cluster(folder / "cluster.toml")
    plan = solve(profile, cluster, 4, planner="balanced", schedule="1f1b").plan
    save_plan(plan, folder / "plan.json")
    sources = ["--profile", str(folder / "profile.json"), "--cluster", str(folder / "cluster.toml")]
    return [
        "train",
        str(folder / "model.py"),
        "--plan",
        str(folder / "plan.json"),
        *sources,
        "--threads",
        "1",
        "--json",
    ]


def losses_of_one_process(script: Path) -> list[float]:
    """The losses of plain training, with the optimizer that `penstock train` uses."""
    import torch

    spec = importlib.util.spec_from_file_location("pausing_model", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, _, loss_of, _ = module.make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses = []
    for _, (inputs, targets) in zip(range(NUM_STEPS), module.make_batches(8), strict=False):
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_the_plan_changes_and_the_losses_do_not(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(adaptive_training, "RESTART_S", 0.1)
    monkeypatch.delenv("RANK", raising=False)
    outcome = run(*planned(tmp_path), "--steps", str(NUM_STEPS), "--adapt", "on")
    assert outcome.code == 0, outcome.err
    assert "d1 takes" in outcome.err
    assert "changed to another plan" in outcome.err, outcome.err
    steps = json.loads(outcome.out)["steps"]
    assert [item["step"] for item in steps] == list(range(NUM_STEPS))
    expected = losses_of_one_process(tmp_path / "model.py")
    assert [item["loss"] for item in steps] == pytest.approx(expected, rel=1e-5)
