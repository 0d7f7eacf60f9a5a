"""Every example runs, and shows what its description promises."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import CodeType

import pytest

import penstock
from tests.support.paths import CLUSTERS, REPOSITORY

EXAMPLES = REPOSITORY / "examples"
NUM_RANKS = 2
TIMEOUT_S = 300


def _run(*words: str, folder: Path) -> list[str]:
    """Run Python with these arguments and return the lines it prints."""
    source = str(REPOSITORY / "src")
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def _torchrun(script: str, *words: str, folder: Path) -> list[str]:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(NUM_RANKS))
    return _run(*launcher, str(EXAMPLES / script), *words, folder=folder)


def _profile(script: str, folder: Path) -> penstock.Profile:
    """A profile of the model of an example."""
    path = str(folder / f"{script}.json")
    words = ("profile", f"{EXAMPLES / script}:make_model", "-b", "2,4", "--threads", "1", "--seconds", "1")
    _run("-m", "penstock", *words, "-o", path, folder=folder)
    return penstock.load_profile(path)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two plans of the example's GPT for two processes."""
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("plans")
    namespace: dict[str, object] = {"__name__": "gpt"}
    exec(compile((EXAMPLES / "gpt.py").read_text(), "gpt.py", "exec"), namespace)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model, inputs, loss, targets = namespace["make_model"]()  # type: ignore[operator]
        profile = penstock.profile(model, inputs, loss, targets=targets, seconds=1, overheads=False)
    finally:
        torch.set_num_threads(threads)
    cluster = penstock.load_cluster(str(CLUSTERS / "this-machine.toml"))
    paths = []
    for planner, schedule in (("balanced", "1f1b"), ("uniform", "gpipe")):
        plan = penstock.plan(profile, cluster, 4, planner=planner, schedule=schedule)
        paths.append(str(folder / f"{planner}.json"))
        penstock.save_plan(plan, paths[-1])
    return paths


def test_a_script_of_ones_own_trains(plans: list[str], tmp_path: Path) -> None:
    lines = _torchrun("torchrun_script.py", plans[0], folder=tmp_path)
    losses = [float(match[1]) for line in lines if (match := re.fullmatch(r"step \d+  loss ([\d.]+)", line))]
    assert len(losses) == 5
    assert losses[-1] < losses[0]


def test_adapters_are_trained_on_a_frozen_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    profile = _profile("lora.py", tmp_path)
    adapter = 4 * (192 + 3 * 192)
    assert [unit.trained_bytes for unit in profile.units] == [0, *[4 * adapter] * 6, *[0] * (profile.num_units - 7)]
    assert profile.ties[0].is_trained is False
    cluster = penstock.load_cluster(str(CLUSTERS / "this-machine.toml"))
    plan = penstock.plan(profile, cluster, 4, planner="uniform", schedule="1f1b")
    penstock.save_plan(plan, tmp_path / "plan.json")
    lines = _torchrun("lora.py", str(tmp_path / "plan.json"), folder=tmp_path)
    losses = [float(match[1]) for line in lines if (match := re.fullmatch(r"step \d+  loss ([\d.]+)", line))]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
    trained = [
        int(match[1].replace(",", "")) for line in lines if (match := re.search(r"trains ([\d,]+) numbers", line))
    ]
    assert sum(trained) == 6 * adapter


def test_a_checkpoint_resumes_under_another_plan(plans: list[str], tmp_path: Path) -> None:
    lines = _torchrun("checkpoint_resume.py", *plans, str(tmp_path / "checkpoints"), folder=tmp_path)
    assert lines[0] == "resumed at step 3, saved under the first plan"
    pairs = [re.findall(r"\d+\.\d+", line) for line in lines[1:]]
    assert len(pairs) == 3
    # The tied embedding is reduced over both stages, in the same order under both plans.
    assert all(float(one) == pytest.approx(float(other), rel=1e-5) for one, other in pairs)


def test_a_custom_planner_is_compared_with_others(tmp_path: Path) -> None:
    lines = _run(str(EXAMPLES / "custom_planner.py"), folder=tmp_path)
    peaks = {line.split()[0]: float(line.split()[4]) for line in lines}
    assert list(peaks) == ["even_parameters", "uniform", "balanced", "spp"]
    assert peaks["even_parameters"] == min(peaks.values()), "it is made to even out memory"


def test_a_custom_schedule_hides_slow_links(tmp_path: Path) -> None:
    lines = _run(str(EXAMPLES / "custom_schedule.py"), "eager.json", folder=tmp_path)
    (name, seconds, peak), (eager_name, eager_seconds, eager_peak) = (
        (words[0], float(words[1]), float(words[-2])) for words in map(str.split, lines)
    )
    assert (name, eager_name) == ("1f1b", "eager_1f1b")
    assert eager_seconds < seconds
    assert eager_peak > peak
    plan = penstock.load_plan(tmp_path / "eager.json")
    assert plan.has_order
    profile = penstock.load_profile("gpt2-xl", kinds=["A100-80"], micro_batch_size=2)
    cluster = penstock.load_cluster("4 x 1 x A100-80 @ 100 GB/s / 1.25 GB/s, 2 ms")
    timeline = penstock.evaluate(plan, profile, cluster).timeline
    assert round(timeline.iteration_s * 1e3, 1) == eager_seconds, "the file holds the order"


def _code_cells(path: Path) -> list[CodeType]:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert {"kernelspec", "language_info"} <= set(notebook["metadata"])
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    for cell in notebook["cells"]:
        keys = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            keys |= {"execution_count", "outputs"}
            assert cell["outputs"] == [], "notebooks are stored without outputs"
        assert set(cell) == keys
    codes = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [compile(code, f"{path.name}, code cell {number}", "exec") for number, code in enumerate(codes)]


def test_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for code in _code_cells(EXAMPLES / "what_if.ipynb"):
        exec(code, namespace)
    same_plan, replanned = namespace["same_plan"], namespace["replanned"]
    assert isinstance(same_plan, dict)
    assert isinstance(replanned, dict)
    assert list(same_plan.values()) == sorted(same_plan.values(), reverse=True), "faster networks, shorter iterations"
    assert all(replanned[key] <= same_plan[key] for key in same_plan)
    assert "waits" in capsys.readouterr().out


def test_every_example_is_listed() -> None:
    listed = set(re.findall(r"^\| \[([\w.]+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert listed == {path.name for pattern in ("*.py", "*.ipynb") for path in EXAMPLES.glob(pattern)}


def _losses(script: str, folder: Path, *runs: tuple[str, ...]) -> list[list[float]]:
    """Profile and plan the model of an example, and return the losses of each run of `penstock train`."""
    path = str(EXAMPLES / script)
    _run(
        "-m", "penstock", "profile", path, "-b", "4", "--threads", "1", "--seconds", "1", "-o", "p.json", folder=folder
    )
    plan = ("--profile", "p.json", "--cluster", str(CLUSTERS / "this-machine.toml"), "-m", "4", "-o", "plan.json")
    _run("-m", "penstock", "plan", *plan, "--planner", "balanced", "--schedule", "1f1b", folder=folder)
    train = ("-m", "penstock", "train", path, "--plan", "plan.json", "--json")
    results = [json.loads("\n".join(_run(*train, *options, folder=folder))) for options in runs]
    return [[step["loss"] for step in result["steps"]] for result in results]


def test_a_model_of_transformers_trains_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    kept = ("--checkpoint", "checkpoints")
    first, second = _losses("huggingface.py", tmp_path, (*kept, "--steps", "6"), (*kept, "--steps", "9"))
    assert (len(first), len(second)) == (6, 3)
    assert second[-1] < first[0] - 0.2


def test_a_model_that_returns_logits_and_its_loss_trains(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (losses,) = _losses("nanogpt.py", tmp_path, ("--steps", "8"))
    assert losses[-1] < losses[0] - 0.2
