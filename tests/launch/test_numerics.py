"""penstock check --numerics, with real ranks on tiny models."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from tests.support.small_training import IS_RANK_1, SCRIPT, write_problem, write_script

Run = Callable[..., "tuple[int, str, str]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("train")
    write_problem(path)
    return path


def test_check_numerics(run: Run, folder: Path) -> None:
    code, out, err = run("check", str(folder / "plan.json"), "--numerics", write_script(folder / "script.py"))
    assert code == 0, err
    assert "no deadlock" in out
    assert "losses: all 5 are bitwise equal" in out
    assert "parameters: all 6 are bitwise equal" in out
    assert "results agree bitwise" in out


@pytest.mark.parametrize("precision", ["bf16", "fp16-mixed"])
def test_the_check_compares_under_the_same_precision(run: Run, folder: Path, precision: str) -> None:
    script = write_script(folder / f"{precision}.py")
    code, out, err = run("check", str(folder / "plan.json"), "--numerics", script, "--precision", precision)
    assert code == 0, err
    assert "losses: all 5 are bitwise equal" in out
    assert "results agree bitwise" in out


REPLICATED = """
import os
import torch
from torch import nn

def make_model():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    model = nn.Sequential(*layers)
    FAULT
    return model, torch.randn(4, 3, 8, 8), nn.functional.cross_entropy, torch.randint(0, 10, (4,))

def make_batches(num_rows):
    while True:
        yield torch.randn(num_rows, 3, 8, 8), torch.randint(0, 10, (num_rows,))
"""
PARAMETER_BYTES = (896, 64, 11_560)
"""Of the layers of this model, in fp32: 224 parameters, 16 and 2890."""
DROP = f"if {IS_RANK_1}: model[1].bias.register_hook(torch.zeros_like)"


@pytest.fixture(scope="module")
def replicas(folder: Path) -> str:
    """A plan for replicas of three units on two ranks."""
    profile = penstock.load_profile(str(folder / "profile.json"))
    units = tuple(
        msgspec.structs.replace(unit, parameter_bytes=parameter_bytes)
        for unit, parameter_bytes in zip(profile.units, PARAMETER_BYTES, strict=False)
    )
    profile = msgspec.structs.replace(profile, units=units)
    penstock.save_profile(profile, folder / "three.json")
    cluster = penstock.load_cluster(str(folder / "cluster.toml"))
    plan = penstock.plan(
        profile,
        cluster,
        2,
        planner="data_parallel",
        profile_source="three.json",
        cluster_source="cluster.toml",
    )
    penstock.save_plan(plan, folder / "replicas.json")
    return str(folder / "replicas.json")


def numerics_of(run: Run, plan: str, path: Path, fault: str) -> tuple[int, dict[str, Any], str]:
    path.write_text(REPLICATED.replace("FAULT", fault))
    code, out, err = run("check", plan, "--numerics", str(path), "--json")
    assert out, err
    return code, json.loads(out)["numerics"], err


def test_gradients_that_are_nothing_but_rounding(run: Run, replicas: str, tmp_path: Path) -> None:
    """A bias before batch norm, which Adam moves by a full step whatever its gradient is."""
    code, found, err = numerics_of(run, replicas, tmp_path / "replicated.py", "pass")
    assert found["parameters"]["worst_name"] == "0.bias"
    assert found["parameters"]["together"] > 1e-6
    steps = found["step_by_step"]
    assert steps["gradients"]["rounding"] == ["0.bias"]
    assert steps["gradients"]["wrong"] == []
    assert 0 < steps["gradients"]["together"] <= 1e-6
    assert steps["parameters"]["num_equal"] == 6
    assert steps["buffers"]["together"] <= 1e-6
    assert (code, found["holds"], found["is_equal"]) == (0, True, False), err


def test_a_replica_whose_gradient_is_dropped(run: Run, replicas: str, tmp_path: Path) -> None:
    """Of one small parameter, beside which the one that is nothing but rounding still is."""
    code, found, _ = numerics_of(run, replicas, tmp_path / "faulty.py", DROP)
    assert (code, found["holds"]) == (1, False)
    gradients = found["step_by_step"]["gradients"]
    assert (gradients["wrong"], gradients["rounding"]) == (["1.bias"], ["0.bias"])


def test_check_numerics_says_no(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    # Another optimizer when there are several ranks: the numbers cannot be the same.
    text = SCRIPT.replace("FAULT", "pass").replace("lr=0.1", 'lr=0.1 if "RANK" not in os.environ else 0.2')
    path.write_text(text)
    code, out, err = run("check", str(folder / "plan.json"), "--numerics", str(path), "--json")
    assert code == 1, err
    found = json.loads(out)
    assert found["holds"] is False
    assert found["numerics"]["losses"][0][0] == found["numerics"]["losses"][0][1]
    assert found["numerics"]["parameters"]["worst"] > 1e-3
