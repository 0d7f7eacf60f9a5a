"""penstock plan: what auto may use, how many micro-batches, how many devices."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.support.small import equal_profile

Run = Callable[..., "tuple[int, str, str]"]

CLUSTER = "4 x RTX-3090 @ 12 GB/s"
GPT2 = ("plan", "--profile", "gpt2", "--cluster", CLUSTER)
QUICK = ("--planner", "balanced")


def _data(outcome: tuple[int, str, str]) -> Any:
    code, out, err = outcome
    assert code == 0, err
    return json.loads(out)


def _refused(outcome: tuple[int, str, str], *said: str) -> None:
    code, _, err = outcome
    assert code == 2
    assert err.count("error: ") == 1
    for text in said:
        assert text in err, err


def test_auto_is_the_default(run: Run) -> None:
    found = _data(run(*GPT2, "-m", "4", "--work", "0", "--json"))
    assert found["plan"]["planner"] == "auto"


@pytest.mark.parametrize(
    ("switch", "holds"),
    [
        ("--no-replication", lambda plan: all(item.num_replicas == 1 for item in plan.stages)),
        ("--one-cut", lambda plan: not any(item.has_remote_backward for item in plan.stages)),
        ("--no-virtual-stages", lambda plan: not _comes_back(plan)),
        ("--no-recomputation", lambda plan: not any(item.recompute for item in plan.stages)),
        ("--fixed-order", lambda plan: list(plan.devices) == sorted(plan.devices)),
    ],
)
def test_each_freedom_can_be_switched_off(
    run: Run, tmp_path: Path, switch: str, holds: Callable[[penstock.Plan], bool]
) -> None:
    path = str(tmp_path / "plan.json")
    assert run(*GPT2, "--micro-batch-size", "8", "-m", "4", "--work", "30", switch, "-o", path, "-q")[0] == 0
    assert holds(penstock.load_plan(path))


def test_the_backward_is_not_split_and_the_schedule_kept(run: Run, tmp_path: Path) -> None:
    path, program = str(tmp_path / "plan.json"), str(tmp_path / "program.json")
    words = ("--micro-batch-size", "8", "-m", "4", "--work", "10", "-q", "-o", path, "--program", program)
    assert run(*GPT2, *words, "--no-backward-split")[0] == 0
    actions = penstock.load_program(program)
    assert not any(
        action.kind in (penstock.Kind.I, penstock.Kind.W)
        for name in actions.devices
        for action in actions.actions(name)
    )
    assert run(*GPT2, *words, "--schedule", "1f1b")[0] == 0
    plan = penstock.load_plan(path)
    assert (plan.planner, plan.schedule) == ("auto", "1f1b")


def _comes_back(plan: penstock.Plan) -> bool:
    """Whether some device has forwards of two stages, and not of one between them."""
    for name in plan.devices:
        held = [number for number, item in enumerate(plan.stages) if name in {each.device for each in item.forward}]
        if held and held != list(range(held[0], held[-1] + 1)):
            return True
    return False


def test_what_is_for_auto_is_refused_elsewhere(run: Run) -> None:
    for words in (("--work", "5"), ("--seed", "1"), ("--budget", "1s")):
        _refused(run(*GPT2, *QUICK, *words), "require the planner auto, not balanced", "--planner auto")


def test_switches_hold_for_every_planner_that_can_keep_to_them(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    for planner in ("pipedream", "spp", "dapple"):
        words = ("--planner", planner, "--ignore-memory", "-o", path)
        assert run(*GPT2, *words, "--no-replication", "--fixed-order")[0] == 0
        plan = penstock.load_plan(path)
        assert plan.planner == planner
        assert all(stage.num_replicas == 1 for stage in plan.stages)
        assert list(plan.devices) == sorted(plan.devices)
    zb_v = ("--planner", "balanced", "--schedule", "zb_v", "--ignore-memory", "-o", path)
    assert run(*GPT2, *zb_v, "--no-virtual-stages")[0] == 0
    assert penstock.load_plan(path).num_stages == len(penstock.load_plan(path).devices)
    _refused(run(*GPT2, *zb_v, "--no-backward-split"), "schedule zb_v splits the backward", "1f1b")
    _refused(
        run(*GPT2, "--planner", "data_parallel", "--no-replication"),
        "planner data_parallel uses stages on several devices",
        "auto",
    )
    _refused(
        run(*GPT2, "--planner", "balanced", "--no-recomputation", "--recompute"),
        "the problem uses recomputation",
        "auto",
    )


def test_the_size_of_micro_batches_is_chosen(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    words = (*GPT2, *QUICK, "-m", "auto", "--global-batch-size", "12")
    found = _data(run(*words, "--json", "-o", path))
    sizes = found["microbatch_sizes"]
    assert [(size["micro_batch_size"], size["num_microbatches"]) for size in sizes] == [
        (rows, 12 // rows) for rows in (1, 2, 3, 4, 6, 12)
    ]
    (best,) = [size for size in sizes if size["chosen"]]
    planned = [size["outcome"]["iteration_s"] for size in sizes if size["outcome"]]
    assert found["iteration_s"] == best["outcome"]["iteration_s"] == min(planned)
    assert (found["plan"]["micro_batch_size"], found["plan"]["num_microbatches"]) == (
        best["micro_batch_size"],
        best["num_microbatches"],
    )
    assert _data(run("simulate", path, "--json"))["iteration_s"] == found["iteration_s"]
    code, out, _ = run(*words)
    assert code == 0
    assert "12 rows per iteration: number of micro-batches" in out
    assert out.index("best") < out.index("balanced + 1f1b")


def test_a_measured_profile_warns_of_what_it_cannot_know(run: Run, tmp_path: Path) -> None:
    profile, cluster = str(tmp_path / "p.json"), tmp_path / "c.toml"
    penstock.save_profile(equal_profile(4), profile)
    cluster.write_text('hosts = 1\ndevices_per_host = 2\nkind = "k"\ninside = "1 GB/s"\n')
    path = str(tmp_path / "plan.json")
    words = ("plan", "--profile", profile, "--cluster", str(cluster), *QUICK, "-m", "auto", "--global-batch-size", "8")
    code, out, err = run(*words, "-o", path)
    assert code == 0
    assert "proportional" in out
    assert "one micro-batch size only (1 rows)" in err
    assert penstock.load_plan(path).num_microbatches == 8
    assert run("check", path, "-q")[0] == 0
    code, out, _ = run(*words, "--devices", "1")
    assert code == 0
    assert "1 of the 2 devices" in out


def test_a_batch_is_divided(run: Run) -> None:
    found = _data(run(*GPT2, *QUICK, "--micro-batch-size", "4", "--global-batch-size", "24", "--json"))
    assert found["plan"]["num_microbatches"] == 6
    _refused(
        run(*GPT2, *QUICK, "--micro-batch-size", "5", "--global-batch-size", "24"),
        "24 is not a multiple",
        "20 or 25",
    )
    _refused(
        run(*GPT2, *QUICK, "-m", "4", "--global-batch-size", "24"), "-m and --global-batch-size are mutually exclusive"
    )
    _refused(run(*GPT2, *QUICK, "-m", "auto"), "--global-batch-size 512")
    _refused(
        run(*GPT2, *QUICK, "-m", "auto", "--global-batch-size", "24", "--micro-batch-size", "2"),
        "--micro-batch-size",
        "Leave it out",
    )
    _refused(run(*GPT2, *QUICK, "-m", "many"), "many")


def test_how_many_devices(run: Run, tmp_path: Path) -> None:
    path, program = str(tmp_path / "plan.json"), str(tmp_path / "program.json")
    every = _data(run(*GPT2, *QUICK, "--devices", "1..4", "--json"))["device_counts"]
    assert [item["num_devices"] for item in every] == [1, 2, 3, 4]
    seconds = [item["outcome"]["iteration_s"] for item in every]
    assert min(range(4), key=seconds.__getitem__) == next(place for place, item in enumerate(every) if item["chosen"])
    target = f"{(seconds[1] + seconds[2]) / 2:.6f}s"
    found = _data(run(*GPT2, *QUICK, "--under", target, "--json", "-o", path, "--program", program))
    assert found["iteration_s"] == seconds[2]
    assert len(found["devices"]) == 3
    # What is written is for the whole cluster, and is read again.
    assert _data(run("simulate", path, "--json"))["iteration_s"] == seconds[2]
    assert run("check", program, "-q")[0] == 0
    code, out, _ = run(*GPT2, *QUICK, "--under", target)
    assert code == 0
    assert "number of devices for an iteration under" in out
    assert "3 of the 4 devices of" in out
    one = _data(run(*GPT2, *QUICK, "--devices", "2", "--json"))
    assert one["iteration_s"] == seconds[1]
    assert "device_counts" not in one


def test_numbers_of_devices_that_cannot_be(run: Run) -> None:
    _refused(run(*GPT2, *QUICK, "--devices", "5"), "--devices", "must be between 1 and 4")
    _refused(run(*GPT2, *QUICK, "--devices", "3..1"), "smaller number first")
    _refused(run(*GPT2, *QUICK, "--devices", "some"), "'some' is not a number of devices", "1..16")
    _refused(run(*GPT2, *QUICK, "--under", "soon"), "--under")
    _refused(run(*GPT2, *QUICK, "--under", "0s"), "must be positive")
    _refused(
        run(*GPT2, *QUICK, "--under", "1ms"), "no plan on 1 to 4 devices has an iteration time under 1.00 ms", "devices"
    )
    for words in (("--devices", "1..2"), ("--under", "9s"), ("--devices", "2", "--under", "9s")):
        _refused(
            run(*GPT2, *QUICK, *words, "-m", "auto", "--global-batch-size", "8"), "-m auto cannot be used with --under"
        )
