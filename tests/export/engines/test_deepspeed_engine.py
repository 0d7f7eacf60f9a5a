"""DeepSpeed trains with an export: the losses and parameters of one process, in the order of the plan."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import penstock
from penstock.plan import find_grid
from penstock.program import Kind
from tests.support.engine_packages import engine_module
from tests.support.export_plans import EIGHT, plans
from tests.support.exports import devices, export, make_plan, named_profile
from tests.support.paths import REPOSITORY
from tests.support.reach import reach, reaches
from tests.support.runtime.loopback_store import LOOPBACK, host_store

pytestmark = pytest.mark.filterwarnings("ignore")
SEQUENTIAL = named_profile([str(number) for number in range(6)])


@reaches(stages=0.4)
@given(data=st.data())
def test_deepspeed_runs_the_order_of_the_plan(data: st.DataObject) -> None:
    module = engine_module("deepspeed.runtime.pipe.schedule")
    plan, profile = data.draw(plans("deepspeed"))
    reach("stages", plan.num_stages > 1)
    program = penstock.evaluate(plan, profile, EIGHT).program
    for rank, names in enumerate(find_grid(plan).devices):
        commands = module.TrainSchedule(plan.num_microbatches, plan.num_stages, rank)
        found = [
            "F" if isinstance(command, module.ForwardPass) else "B"
            for step in commands.steps()
            for command in step
            if isinstance(command, (module.ForwardPass, module.BackwardPass))
        ]
        actions = [action.kind.name for action in program.actions(names[0]) if action.kind in (Kind.F, Kind.B)]
        assert found == actions


def single_process(rows: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Plain training of the same model in this process."""
    from tests.support import deepspeed_training as shared

    model = nn.Sequential(*shared.make_layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=shared.RATE)
    losses = []
    for step in shared.batches(rows):
        total = 0.0
        for inputs, targets in step:
            loss = shared.loss_fn(model(inputs), targets) / shared.MICRO_BATCHES
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, dict(model.named_parameters())


@pytest.mark.skipif(shutil.which("g++") is None, reason="DeepSpeed compiles a part of itself with g++")
def test_two_ranks_train_with_the_results_of_one_process(tmp_path: Path) -> None:
    engine_module("deepspeed")
    plan = make_plan(SEQUENTIAL, devices(2), [0, 2, 6], [["d0"], ["d1"]], schedule="1f1b", rows=2, recompute=[1])
    for name, text in export(plan, SEQUENTIAL, devices(2), "deepspeed").files.items():
        (tmp_path / name).write_text(text)
    store = host_store()
    environment = {
        **os.environ,
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPOSITORY),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    program = str(REPOSITORY / "tests" / "support" / "deepspeed_training.py")
    command = ["sh", str(tmp_path / "launch.sh"), "h", sys.executable, program, str(tmp_path), str(tmp_path), "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    losses, parameters = single_process(2)
    assert found[0]["losses"] == found[1]["losses"] == pytest.approx(losses, rel=1e-5)
    assert [item["interval"] for item in found] == [0, 4]
    held = {name: torch.tensor(value) for item in found for name, value in item["parameters"].items()}
    assert set(held) == set(parameters)
    for name, value in held.items():
        assert torch.allclose(value, parameters[name], rtol=1e-5, atol=1e-6)
