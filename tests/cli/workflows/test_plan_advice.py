"""What is said with a plan: its words, its bound's proof, and advice where it does not fit into memory."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.bundle.sources import ProfileSource
from penstock.cli.console import Console
from penstock.cli.workflows.plan_advice import evaluate_or_advise, other_plan
from penstock.planners.api import make_problem, solve
from penstock.planners.problem import Problem
from penstock.planners.solution import Solution
from penstock.planners.studies.alternatives import ANYTHING

Run = Callable[..., "tuple[int, str, str]"]

QUIET = Console(quiet=True)
GRAPH = "node{0} -- Linear -- forward_compute_time=1, backward_compute_time=2, activation_size=1e9, parameter_size=8\n"


def _cluster(folder: Path, memory: str) -> str:
    path = folder / "c.toml"
    path.write_text(f'hosts = 1\ndevices_per_host = 2\nkind = "T4"\nmemory = "{memory}"\ninside = "1 GB/s"\n')
    return str(path)


def _made(source: ProfileSource, cluster: str, num_microbatches: int) -> tuple[Problem, Solution]:
    profile = source.load()
    problem = make_problem(profile, penstock.load_cluster(cluster), num_microbatches, planner="balanced")
    return problem, solve(profile, problem.cluster, num_microbatches, planner="balanced")


def test_advice_can_be_followed(run: Run, tmp_path: Path) -> None:
    cluster = _cluster(tmp_path, "2.2 GB")
    source = ProfileSource("gpt2", kinds=("T4",), micro_batch_size=4)
    problem, solution = _made(source, cluster, 8)
    with pytest.raises(penstock.MemoryLimitError) as caught:
        evaluate_or_advise(QUIET, problem, solution, source)
    assert re.match(r"d0 needs .* more than the 2.20 GB it has", caught.value.what)
    lines = caught.value.hint.split("\n  ")
    assert any(re.match(r"with --recompute it is still \S+ \wB short$", line) for line in lines)
    fitting = next(line for line in lines if "it fits" in line and "--micro-batch-size" in line)
    match = re.fullmatch(r"with (--.*) it fits \(fullest device at (.*) of 2.20 GB, iteration (.*)\)", fitting)
    assert match is not None
    options, room, seconds = match.groups()
    # The same options as those of a command give what was said.
    words = ("plan", "--profile", "gpt2", "--cluster", cluster, "--planner", "balanced", "--schedule", "1f1b", "--json")
    code, out, _ = run(*words, *options.split())
    assert code == 0
    found = json.loads(out)
    assert penstock.load_profile("gpt2", kinds=["T4"]).micro_batch_size == 1
    assert f"{max(use['peak_bytes'] for use in found['devices']) / 1e9:.2f} GB" == room
    assert f"{found['iteration_s']:.2f} s" == seconds


def test_memory_can_be_ignored(tmp_path: Path) -> None:
    source = ProfileSource("gpt2", kinds=("T4",), micro_batch_size=4)
    problem, solution = _made(source, _cluster(tmp_path, "2 GB"), 8)
    result = evaluate_or_advise(QUIET, problem, solution, source, within_memory=False)
    assert result.proof.peak_bytes.max() > 2e9
    problem, solution = _made(source, "2 x T4 @ 1 GB/s", 8)
    assert evaluate_or_advise(QUIET, problem, solution, source).timeline.iteration_s == result.timeline.iteration_s


def test_rows_of_pipedream_files_are_not_an_option(tmp_path: Path) -> None:
    # There, --micro-batch-size says how many rows were measured: to ask for fewer would only make every row dearer.
    path = tmp_path / "graph.txt"
    path.write_text("".join(GRAPH.format(number) for number in range(1, 4)) + "\tnode1 -- node2\n\tnode2 -- node3\n")
    source = ProfileSource(str(path), micro_batch_size=4)
    problem, solution = _made(source, _cluster(tmp_path, "3 GB"), 2)
    with pytest.raises(penstock.MemoryLimitError) as caught:
        evaluate_or_advise(QUIET, problem, solution, source)
    assert "--micro-batch-size" not in caught.value.hint
    assert re.search(r"with \d+ micro-batches of \d rows? it ", caught.value.hint)
    saved = tmp_path / "profile.json"
    penstock.save_profile(source.load(), saved)
    source = ProfileSource(str(saved))
    problem, solution = _made(source, _cluster(tmp_path, "3 GB"), 2)
    with pytest.raises(penstock.MemoryLimitError) as caught:
        evaluate_or_advise(QUIET, problem, solution, source)
    assert "with --micro-batch-size " in caught.value.hint


def test_other_plans_are_for_those_who_read() -> None:
    problem, solution = _made(ProfileSource("gpt2", kinds=("T4",)), "2 x T4 @ 1 GB/s", 4)
    assert other_plan(QUIET, problem, solution.plan, ANYTHING) is None
    found = other_plan(Console(quiet=True, as_json=True), problem, solution.plan, ANYTHING)
    assert found is not None
    assert found == other_plan(Console(), problem, solution.plan, ANYTHING)


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    source = ProfileSource("gpt2", kinds=("T4",))
    profile, cluster = source.load(), "2 x T4 @ 1 GB/s"
    made = penstock.plan(
        profile,
        penstock.load_cluster(cluster),
        4,
        planner="balanced",
        profile_source=source.text,
        cluster_source=cluster,
    )
    penstock.save_plan(made, path)
    return str(path)


def test_words_for_people_and_machines(run: Run, plan_file: str) -> None:
    code, out, _ = run("simulate", plan_file)
    assert code == 0
    found = json.loads(run("simulate", plan_file, "--json")[1])
    assert len(found["words"]) >= 5
    for sentence in found["words"]:
        assert sentence in out
    parts = {part["name"]: part["seconds"] for part in found["bound_parts"]}
    assert parts[found["bound_by"]] == max(parts.values()) == found["bound_s"]
    assert found["gap"] == found["iteration_s"] / found["bound_s"] - 1
    assert f"({found['bound_by']} bound: " in found["words"][-1]
    assert found["next_best"] is None
    assert len(found["papers"]) == 2
    assert found["papers"][0] not in out
    assert found["papers"][0] in run("simulate", plan_file, "-v")[1]
