"""penstock profile and penstock plan with a config.json."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.profile.analytic.architectures import ARCHITECTURES

Run = Callable[..., "tuple[int, str, str]"]

CLUSTER = "4 x A100-80 @ 25 GB/s"


def config_path(folder: Path, **keys: object) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(keys))
    return str(path)


def test_experts_state_active_and_total_parameters(run: Run, tmp_path: Path) -> None:
    path = config_path(tmp_path, model_type="mixtral")
    code, out, err = run("profile", path, "--sequence", "128", "-v")
    assert (code, err) == (0, "")
    assert "parameters: 46,702,792,704 in total, 12,879,925,248 active for each token" in out
    assert "Routing is balanced: each token uses 2 of 8 experts" in " ".join(out.split())
    code, out, _ = run("profile", path, "--sequence", "128", "--json")
    assert code == 0
    assert json.loads(out)["parameter_counts"] == {"total": 46_702_792_704, "active": 12_879_925_248}


def test_models_without_experts_state_no_active_parameters(run: Run, tmp_path: Path) -> None:
    path = config_path(tmp_path, model_type="qwen3", num_hidden_layers=2)
    assert "active for each token" not in run("profile", path, "--sequence", "128")[1]


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_every_architecture_can_be_planned(run: Run, tmp_path: Path, family: str) -> None:
    # All 256 experts of a block of DeepSeek-V3 do not fit on one device.
    fewer = {"n_routed_experts": 16} if family == "deepseek_v3" else {}
    path = config_path(tmp_path, model_type=family, num_hidden_layers=4, **fewer)
    plan = str(tmp_path / "plan.json")
    words = ("--micro-batch-size", "2", "-m", "4", "--cluster", CLUSTER, "--planner", "balanced", "-q", "-o", plan)
    length = () if family == "vit" else ("--sequence", "64")
    code, _, err = run("plan", "--profile", path, *length, *words)
    assert (code, err) == (0, "")
    assert run("check", plan)[0] == 0


def test_the_list_names_the_model_types(run: Run) -> None:
    listed = json.loads(run("profile", "--json")[1])
    assert listed["model_types"] == list(ARCHITECTURES)
    assert ", ".join(ARCHITECTURES) in " ".join(run("profile")[1].split())


def test_an_unsupported_model_type_is_one_error(run: Run, tmp_path: Path) -> None:
    code, out, err = run("plan", "--profile", config_path(tmp_path, model_type="mamba"), "--cluster", CLUSTER)
    assert (code, out) == (2, "")
    assert err.count("error: ") == 1
    assert "qwen3_moe" in err
    assert "penstock profile script.py:make_model" in err
