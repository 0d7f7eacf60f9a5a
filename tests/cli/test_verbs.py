"""Every verb does what it says, for people and for machines."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock

Run = Callable[..., "tuple[int, str, str]"]

CLUSTER = "4 x RTX-3090 @ 12 GB/s"
BALANCED = ("plan", "--profile", "gpt2", "--planner", "balanced")


@pytest.fixture
def plan_file(run: Run, tmp_path: Path) -> str:
    path = str(tmp_path / "plan.json")
    code, _, err = run(*BALANCED, "--cluster", CLUSTER, "-m", "8", "-o", path, "-q")
    assert (code, err) == (0, "")
    return path


def test_profile(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "profile.json")
    code, out, _ = run("profile", "gpt2", "--kind", "T4", "--kind", "L4", "--micro-batch-size", "2", "-o", path)
    assert code == 0
    assert "gpt2: one micro-batch of 2 rows on T4" in out
    assert "on L4" in out
    assert "assumed: " in out
    assert out.rstrip().splitlines()[-1].startswith("next: penstock plan --profile ")
    assert penstock.load_profile(path).kinds == ("T4", "L4")
    code, out, _ = run("profile", path, "--json")
    assert json.loads(out)["name"] == "gpt2"
    code, out, _ = run("profile")
    assert code == 0
    assert "llama-3-70b" in out
    assert "RTX-4090" in out


def test_cluster(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.toml")
    code, out, _ = run("cluster", "2 x 4 x V100-16 @ 100 GB/s / 1.25 GB/s", "-o", path)
    assert code == 0
    assert "8 devices on 2 hosts" in out
    assert "assumed: " in out
    code, out, _ = run("cluster", path, "--json")
    assert len(json.loads(out)["devices"]) == 8


@pytest.mark.parametrize("schedule", list(penstock.SCHEDULES))
@pytest.mark.parametrize("planner", [name for name in penstock.PLANNERS if name != "auto"])
def test_plan_with_everything(run: Run, tmp_path: Path, planner: str, schedule: str) -> None:
    words = ["plan", "--profile", "gpt2", "--cluster", CLUSTER, "-m", "6", "--planner", planner, "--schedule", schedule]
    names = {name: str(tmp_path / f"{name}.json") for name in ("output", "program", "timeline", "trace")}
    code, out, err = run(*words, *[word for name, path in names.items() for word in (f"--{name}", path)], "-v")
    assert code == 0
    replicated = any(item.num_replicas > 1 for item in penstock.load_plan(names["output"]).stages)
    assert ("replicas get fractional rows" in err) == replicated
    assert f"{planner} + {schedule}" in out
    assert "proved: " in out
    assert "iteration " in out
    assert "critical path" in out
    plan = penstock.load_plan(names["output"])
    assert (plan.planner, plan.schedule, plan.num_microbatches) == (planner, schedule, 6)
    timeline = penstock.load_timeline(names["timeline"])
    assert timeline.program.same_actions(penstock.load_program(names["program"]))
    assert json.loads(Path(names["trace"]).read_text())["traceEvents"]
    code, out, _ = run("simulate", names["output"], "--json")
    assert code == 0
    assert json.loads(out)["iteration_s"] == timeline.iteration_s
    code, out, _ = run("simulate", names["program"], "--json")
    assert json.loads(out)["iteration_s"] == timeline.iteration_s


def test_quiet_prints_nothing(run: Run, plan_file: str) -> None:
    assert run("simulate", plan_file, "-q") == (0, "", "")
    assert run("check", plan_file, "-q") == (0, "", "")


def test_check(run: Run, plan_file: str, tmp_path: Path) -> None:
    code, out, _ = run("check", plan_file)
    assert code == 0
    assert "no deadlock" in out
    program = str(tmp_path / "program.json")
    run("simulate", plan_file, "--program", program, "-q")
    assert run("check", program)[0] == 0
    text = Path(program).read_text()
    Path(program).write_text(text.replace('"0F3"', '"0F2"', 1))
    code, out, err = run("check", program)
    assert (code, out) == (1, "")
    assert "proof failed: 0F2 on d0 occurs twice" in err
    code, out, _ = run("check", program, "--json")
    assert code == 1
    assert json.loads(out)["holds"] is False


def test_compare(run: Run) -> None:
    words = ("compare", "--profile", "gpt2", "--cluster", CLUSTER, "-m", "4", "--work", "5")
    code, out, _ = run(*words)
    assert code == 0
    found = json.loads(run(*words, "--json")[1])["plans"]
    assert len(found) == (len(penstock.PLANNERS) - 1) * len(penstock.SCHEDULES) + 1
    assert min(found, key=lambda entry: entry["planner"] != "auto")["iteration_s"] == found[0]["iteration_s"]
    assert [entry["iteration_s"] for entry in found] == sorted(entry["iteration_s"] for entry in found)
    assert out.index(found[0]["planner"]) < out.index("speed-up: over one device")


def test_another_profile_is_refused_and_forced_loudly(run: Run, plan_file: str) -> None:
    words = ("simulate", plan_file, "--profile", "gpt2", "--kind", "T4")
    code, _, err = run(*words)
    assert code == 2
    assert "the plan was made for another profile" in err
    code, _, err = run(*words, "--force")
    assert code == 0
    assert "warning: the plan was made for another profile" in err
    code, _, err = run(*words, "--force", "--json")
    assert "warning: the plan was made for another profile" in err


def test_no_color(run: Run, plan_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[3" not in run("simulate", plan_file)[1]


def test_names_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[[host]]\nname = "h"\ninside = "1 GB/s"\n'
        + "".join(f'[[device]]\nname = "[red]x\\u001b[31m{number}"\nhost = "h"\nkind = "T4"\n' for number in range(2))
    )
    for words in (("cluster", str(path)), (*BALANCED, "--cluster", str(path), "-m", "2")):
        code, out, err = run(*words)
        assert (code, err) == (0, "")
        assert "\x1b" not in out
        assert "[red]x\\x1b[31m0" in out


def test_recompute_and_ignore_memory(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('hosts = 1\ndevices_per_host = 2\nkind = "T4"\nmemory = "2.2 GB"\ninside = "1 GB/s"\n')
    base = (*BALANCED, "--cluster", str(path), "-m", "8", "--json")
    assert run(*base)[0] == 2
    kept = json.loads(run(*base, "--ignore-memory")[1])
    again = json.loads(run(*base, "--recompute")[1])
    assert again["plan"]["stages"][0]["recompute"] is True
    assert again["iteration_s"] > kept["iteration_s"]
    assert (
        max(use["peak_bytes"] for use in again["devices"]) <= 2.2e9 < max(use["peak_bytes"] for use in kept["devices"])
    )


def test_auto_with_budget_work_and_freedoms(run: Run) -> None:
    base = ("plan", "--profile", "gpt2", "--cluster", CLUSTER, "-m", "4", "--planner", "auto", "--json")
    free = json.loads(run(*base, "--work", "40")[1])
    again = json.loads(run(*base, "--work", "40")[1])
    assert free["plan"] == again["plan"]
    bound = ("--no-replication", "--one-cut", "--no-virtual-stages", "--no-recomputation")
    plain = json.loads(run(*base, "--work", "40", *bound)[1])
    assert free["iteration_s"] <= plain["iteration_s"]
    assert len(plain["plan"]["stages"]) <= 4
    assert run(*base, "--budget", "100 ms", "-q")[0] == 0
    assert run(*BALANCED, "--cluster", CLUSTER, "--one-cut", "-q")[0] == 0
    code, _, err = run(*base[:-3], "--planner", "data_parallel", "--no-replication")
    assert code == 2
    assert "data_parallel" in err
    assert run(*base, "--budget", "soon")[0] == 2


def test_narrow_screens_keep_the_numbers(run: Run, plan_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = json.loads(run("simulate", plan_file, "--json")[1])
    assert wide["bound_s"] <= wide["iteration_s"]
    monkeypatch.setenv("COLUMNS", "80")
    out = run("simulate", plan_file)[1]
    assert "ms" in out.splitlines()[2]
    assert "no plan can be faster than" in out


def test_check_names_the_fullest_device(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[[host]]\nname = "h"\ninside = "1 GB/s"\n'
        '[[device]]\nname = "small and idle"\nhost = "h"\nkind = "T4"\nmemory = "1 GB"\n'
        '[[device]]\nname = "large"\nhost = "h"\nkind = "T4"\nmemory = "16 GB"\n'
    )
    made = tmp_path / "p.json"
    words = (*BALANCED, "--cluster", str(path), "-m", "2", "--ignore-memory", "-o", str(made), "-q")
    assert run(*words)[0] == 0
    text = made.read_text().replace("small and idle", "large")
    value = json.loads(text)
    whole = value["stages"][0] | {"start": 0, "stop": value["stages"][-1]["stop"]}
    made.write_text(json.dumps(value | {"stages": [whole]}))
    code, out, _ = run("check", str(made))
    assert code == 0
    assert "the fullest device is large" in out
