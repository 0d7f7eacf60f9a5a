"""penstock compare: filters, ratios, memory of every device, and what every freedom is worth."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.export import import_plan
from penstock.planners.studies.ablation import SETTINGS
from tests.support.small import equal_profile

Run = Callable[..., "tuple[int, str, str]"]

BASE = (
    "compare",
    "--profile",
    "gpt2",
    "--micro-batch-size",
    "4",
    "--cluster",
    "3 x RTX-3090 @ 12 GB/s",
    "-m",
    "4",
    "--work",
    "5",
)


def test_only_some_planners_and_schedules(run: Run) -> None:
    words = (*BASE, "--planners", "uniform,balanced", "--schedules", "1f1b, zb_h1")
    found = json.loads(run(*words, "--json")[1])
    named = {(entry["planner"], entry["schedule"]) for entry in found["plans"]}
    assert named == {(planner, name) for planner in ("uniform", "balanced") for name in ("1f1b", "zb_h1")}
    for entry in found["plans"]:
        assert entry["gap"] == pytest.approx(entry["iteration_s"] / found["bound_s"] - 1)
        assert entry["speed_up"] == pytest.approx(found["one_device_s"] / entry["iteration_s"])
        assert [item["device"] for item in entry["devices"]] == ["d0", "d1", "d2"]
        assert max(item["peak_bytes"] for item in entry["devices"]) == entry["peak_bytes"]
        assert all(item["memory_bytes"] == 24e9 for item in entry["devices"])
    best = {
        name: min(entry["iteration_s"] for entry in found["plans"] if entry["planner"] == name)
        for name in ("uniform", "balanced")
    }
    table = {item["planner"]: item["times_as_long_as"] for item in found["ratios"]}
    assert table["uniform"]["balanced"] == pytest.approx(best["uniform"] / best["balanced"])
    assert table["uniform"]["uniform"] == 1.0
    code, out, _ = run(*words)
    assert code == 0
    assert "iteration time of the row divided by that of the column" in out
    assert f"{best['uniform'] / best['balanced']:.2f}" in out


def test_auto_keeps_to_the_schedules_that_are_named(run: Run) -> None:
    found = json.loads(run(*BASE, "--planners", "auto,uniform", "--schedules", "1f1b", "--json")[1])["plans"]
    seconds = {entry["planner"]: entry["iteration_s"] for entry in found}
    assert [entry["schedule"] for entry in found] == ["1f1b", "1f1b"]
    assert seconds["auto"] <= seconds["uniform"]


def test_names_that_are_not_there(run: Run) -> None:
    for words, said in (
        (("--planners", "best"), "unknown planner 'best'"),
        (("--schedules", "1f1b,2f2b"), "unknown schedule '2f2b'"),
        (("--planners", " ,"), "no planner is named"),
        (("--ablate", "--planners", "auto"), "--ablate cannot be used with --planners or --schedules"),
    ):
        code, out, err = run(*BASE, *words)
        assert (code, out) == (2, "")
        assert said in err


def test_ablate(run: Run, tmp_path: Path) -> None:
    profile = str(tmp_path / "profile.json")
    penstock.save_profile(equal_profile(3, cut_bytes=10, parameter_bytes=10), profile)
    words = ("compare", "--profile", profile, "--cluster", "2 x k @ 1 GB/s", "-m", "2", "--work", "5", "--ablate")
    code, out, _ = run(*words)
    assert code == 0
    for setting in SETTINGS:
        assert setting.name in out
    assert "Bi-Partition: without replication" in out
    assert "-0." not in out
    assert out.rstrip().splitlines()[-1].startswith("next: penstock plan ")
    found = json.loads(run(*words, "--json")[1])["ablation"]
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == [setting.name for setting in SETTINGS]
    assert rows["ordinary pipeline"]["search_space"]["replication"] is False
    least = rows["everything"]["outcome"]["iteration_s"]
    for row in rows.values():
        assert row["times_as_long"] == pytest.approx(row["outcome"]["iteration_s"] / least)
        assert row["times_as_long"] >= 1.0
    gain = found["bipartition"]
    assert gain["one_set_s"] == rows["ordinary pipeline"]["outcome"]["iteration_s"]
    assert gain["two_sets_s"] == rows["no replication"]["outcome"]["iteration_s"]


LLAMA = (
    "compare",
    "--profile",
    "llama-3-8b",
    "-b",
    "2",
    "--cluster",
    "4 x A100-80 @ 100 GB/s",
    "-m",
    "4",
    "--work",
    "5",
)


def test_against_what_an_engine_runs(run: Run) -> None:
    words = (*LLAMA, "--work", "5", "--against", "megatron:Et*8|t*8|t*8|t*8L")
    data = json.loads(run(*words, "--json")[1])
    assert data["engine"] == "megatron"
    running, found, best = (data[name]["iteration_s"] for name in ("running", "best_for_engine", "best"))
    profile = penstock.load_profile("llama-3-8b", kinds=["A100-80"], micro_batch_size=2)
    cluster = penstock.load_cluster(LLAMA[6])
    plan = import_plan(words[-1], profile, cluster, 4)
    assert running == penstock.evaluate(plan, profile, cluster, within_memory=False).timeline.iteration_s
    fits = [data[name]["fits"] for name in ("running", "best_for_engine", "best")]
    assert fits == sorted(fits)
    if all(fits):
        assert best <= found <= running
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert "running on Megatron-Core" in out
    assert out.rstrip().splitlines()[-1].endswith("--engine megatron -o plan.json")


def test_wrong_descriptions_of_what_runs(run: Run) -> None:
    for words, said in (
        (("--against", "megatron:Et*8|t*8L"), "16 blocks, the model has 32"),
        (("--against", "megatron:Et*16|t*16L pp=1 dp=1"), "one pipeline rank has several stages"),
        (("--against", "x:1", "--ablate"), "--against cannot be used with --ablate"),
    ):
        code, out, err = run(*LLAMA, *words)
        assert (code, out) == (2, "")
        assert said in err
