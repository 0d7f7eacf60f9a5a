"""penstock export, and penstock plan --engine."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "tuple[int, str, str]"]
CLUSTER = "2 x A100-80 @ 100 GB/s"
GPT2 = ("plan", "--profile", "gpt2", "-b", "4", "--cluster", CLUSTER, "-m", "4", "--work", "10")


@pytest.fixture
def plan_file(run: Run, tmp_path: Path) -> str:
    path = str(tmp_path / "plan.json")
    code, _, err = run(*GPT2, "--untied", "--engine", "torch", "-o", path, "-q")
    assert code == 0, err
    return path


def test_export(run: Run, plan_file: str, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "torch"
    code, out, err = run("export", plan_file, "--to", "torch", "-o", str(folder))
    assert (code, err) == (0, "")
    assert "predicted: " in out
    assert f"read {folder / 'README.md'}" in out
    assert json.loads((folder / "pipeline.json").read_text())["stages"][0]["modules"][0] == "transformer.wte"
    code, out, _ = run("export", plan_file, "--to", "torch", "-o", str(folder), "--json")
    assert code == 0
    data = json.loads(out)
    assert data["files"] == sorted(item.name for item in folder.iterdir())
    assert data["predicted_iteration_s"] > 0
    assert all(isinstance(text, str) for text in data["approximations"])


def test_a_folder_with_other_files_is_kept(run: Run, plan_file: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    code, _, err = run("export", plan_file, "--to", "torch", "-o", str(tmp_path))
    assert code == 2
    assert "the folder is not empty: plan.json" in err
    other = tmp_path / "other"
    other.mkdir()
    (other / "README.md").write_text("mine")
    assert run("export", plan_file, "--to", "torch", "-o", str(other))[0] == 2
    assert (other / "README.md").read_text() == "mine"
    assert "is not a folder" in run("export", plan_file, "--to", "torch", "-o", plan_file)[2]
    assert "the folder cannot be made" in run("export", plan_file, "--to", "torch", "-o", f"{plan_file}/x")[2]


def test_refusals(run: Run, plan_file: str, tmp_path: Path) -> None:
    code, _, err = run("export", plan_file, "--to", "torhc", "-o", str(tmp_path / "x"))
    assert (code, "Did you mean 'torch'?" in err) == (2, True)
    code, _, err = run(*GPT2, "--engine", "torch")
    assert (code, "--untied" in err) == (2, True)
    path = str(tmp_path / "tied.json")
    assert run("plan", *GPT2[1:-2], "--planner", "balanced", "-o", path, "-q")[0] == 0
    code, _, err = run("export", path, "--to", "torch", "-o", str(tmp_path / "x"))
    assert code == 2
    assert "stages 0, 1 share the parameters 'word embedding' (--untied)" in err
    assert "penstock plan --engine torch --untied" in err
    assert not (tmp_path / "x").exists()


def test_what_staying_with_an_engine_costs(run: Run) -> None:
    code, out, err = run(*GPT2, "--untied", "--engine", "torch")
    assert code == 0, err
    assert "Staying with torch.distributed.pipelining costs" in out
    data = json.loads(run(*GPT2, "--untied", "--engine", "torch", "--json")[1])
    assert data["engine"]["name"] == "torch"
    assert data["engine"]["unrestricted_iteration_s"] > 0


def test_other_planners_plan_for_an_engine(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    words = ("--untied", "--engine", "torch", "--planner", "balanced", "-o", path, "-q")
    assert run(*GPT2[:-2], *words)[0] == 0
    assert run("export", path, "--to", "torch", "-o", str(tmp_path / "x"), "-q")[0] == 0


def test_an_untied_plan_names_its_profile(run: Run, plan_file: str) -> None:
    source = json.loads(Path(plan_file).read_text())["profile"]["source"]
    assert source.endswith(" --untied")
    assert run("check", plan_file, "-q")[0] == 0
