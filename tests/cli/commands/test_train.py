"""penstock train, with real ranks on a tiny model."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import penstock
from penstock.program.actions import Kind
from tests.support.small_training import IS_RANK_1, SCRIPT, write_problem, write_script

Run = Callable[..., "tuple[int, str, str]"]

KILL = f"if step == 2 and {IS_RANK_1}: os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("train")
    write_problem(path)
    return path


@pytest.fixture
def script(folder: Path, request: pytest.FixtureRequest) -> Callable[[str], str]:
    def make(fault: str = "pass") -> str:
        return write_script(folder / f"{request.node.name}.py", fault)

    return make


OPTIONS = ("--global-batch-size", "10", "--gradient-accumulation-steps", "2", "--seed", "3", "--json")
NUM_STEPS = 5


class Whole(NamedTuple):
    """A run without interruption, beside one process that trains."""

    outcome: "tuple[int, str, str]"
    timeline: Path
    trace: Path


@pytest.fixture(scope="module")
def whole(folder: Path) -> Whole:
    timeline, trace = folder / "timeline.json", folder / "trace.json"
    words = (write_script(folder / "whole.py"), "--plan", str(folder / "plan.json"), "--steps", str(NUM_STEPS))
    outputs = ("-o", str(timeline), "--trace", str(trace))
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "train", *words, *OPTIONS, "--also-single-process", *outputs],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return Whole((done.returncode, done.stdout, done.stderr), timeline, trace)


def test_it_trains_as_one_process_does_and_compares(whole: Whole) -> None:
    code, out, err = whole.outcome
    assert code == 0, err
    found = json.loads(out)
    assert [step["step"] for step in found["steps"]] == list(range(NUM_STEPS))
    assert [step["num_rows"] for step in found["steps"]] == [20] * NUM_STEPS
    assert len({step["loss"] for step in found["steps"]}) == NUM_STEPS
    assert found["single_process"]["losses_equal"]
    assert [step["loss"] for step in found["single_process"]["steps"]] == [step["loss"] for step in found["steps"]]
    assert found["single_process"]["speed_up"] > 0
    comparison = found["comparison"]
    # The plan has 3 units a device, each of 1 ms a pass at 4 rows, of which 4, 3 and 3 are trained on at a time.
    by_name = {(row["kind"], row["stage"]): row for row in comparison["rows"]}
    assert by_name["F", 0]["num"] == 3
    assert by_name["F", 0]["predicted_s"] == pytest.approx(3e-3)
    assert by_name["B", 1]["predicted_s"] == pytest.approx(6e-3)
    assert all(row["measured_s"] > 0 for row in comparison["rows"] if row["kind"] in "FB")
    assert comparison["ratio"] == pytest.approx(comparison["measured_s"] / comparison["predicted_s"])
    timeline = penstock.load_timeline(whole.timeline)
    assert timeline.origin == "measured"
    assert int((timeline.program.kind == Kind.B).sum()) == 6
    assert 0 <= penstock.bubble_fraction(timeline) < 1
    assert json.loads(whole.trace.read_text())["traceEvents"]
    assert err.count("batches of 10") == 2  # of one process, and of rank 0 of two


def test_what_people_see(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text(SCRIPT.partition("def make_batches")[0])
    words = ("train", str(path), "--plan", str(folder / "plan.json"), "--steps", "3", "--lr", "0.01", "--threads", "2")
    code, out, err = run(*words)
    assert code == 0, err
    assert "on 2 ranks: step 0 (1 of 3), loss " in out
    assert "step 2 (3 of 3)" in out
    assert "bubble" in out
    assert "every step trains on the sample batch of make_model" in out
    assert "simulated: " in out
    assert "measured: " in out
    assert "An iteration was predicted to take " in out
    assert "forward of stage 1" in out
    assert out.rstrip().splitlines()[-1].startswith("next: penstock check --numerics ")
    assert "but ranks on this host are cpu-2-threads: the prediction does not apply" in err


def test_a_model_on_the_meta_device_with_batches_of_other_sizes(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "meta.py"
    made = "    return nn.Sequential(*layers), torch.ones"
    assert made in SCRIPT
    path.write_text(
        SCRIPT.replace("FAULT", "num_rows = 9").replace(made, made.replace("(*layers)", '(*layers).to("meta")'))
    )
    words = ("--plan", str(folder / "plan.json"), "--steps", "2", "--also-single-process", "--json")
    code, out, err = run("train", str(path), *words)
    assert code == 0, err
    found = json.loads(out)
    first, second = (step["loss"] for step in found["steps"])
    assert 0 < second != first
    assert found["single_process"]["losses_equal"]
    assert [step["num_rows"] for step in found["steps"]] == [9, 9]
    said = "the script's batches do not have 12 rows, the global batch size of the prediction"
    assert any(said in note for note in found["notes"]), found["notes"]


def test_the_printed_command_works(run: Run, folder: Path, script: Callable[..., str]) -> None:
    code, out, _ = run("train", script(), "--plan", str(folder / "plan.json"), "--steps", "2", "--dry-run")
    assert code == 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["sh", "-c", out.strip()], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines() if "loss" in line] == ["step 0", "step 1"]


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (KILL, 1, "rank 1 was killed by SIGKILL at step 2"),
        (f"if {IS_RANK_1}: torch.randn(1)", 2, "rank 0 and rank 1 have different batches in step 0"),
        ("if step == 1: yield torch.ones(num_rows, 6), torch.ones(num_rows, 3)", 2, "In the loss, step 1, rows 0 to 3"),
    ],
    ids=["killed", "batches", "loss"],
)  # fmt: skip
def test_one_clear_message(
    run: Run, folder: Path, script: Callable[..., str], fault: str, code: int, said: str
) -> None:
    """And for an error of the script, in tests/launch/test_listening_sockets.py."""
    found, out, err = run("train", script(fault), "--plan", str(folder / "plan.json"), "--steps", "9", "-q")
    assert found == code, err
    assert said in err
    assert err.count("error: ") == 1
    assert "Traceback" not in err + out
    assert len(err.splitlines()) <= 8
    assert ("Last status of each rank:" in err) == (code == 1)


LOWERED = (
    "import gc; from penstock.runtime.assembly.compilation import Compiled; "
    "raise ValueError(f'lowered: {[\"proof\" in vars(item) for item in gc.get_objects() if type(item) is Compiled]}')"
)


def test_ranks_load_their_slices_of_the_program(run: Run, folder: Path, script: Callable[..., str]) -> None:
    _, _, err = run("train", script(LOWERED), "--plan", str(folder / "plan.json"), "--steps", "2", "-q")
    assert "lowered: [False]" in err


NO_NUMBER = "if step == 1: yield torch.full((num_rows, 6), torch.nan), torch.zeros(num_rows, 2)"


def test_a_loss_that_is_not_a_number(run: Run, folder: Path, script: Callable[..., str]) -> None:
    words = ("train", script(NO_NUMBER), "--plan", str(folder / "plan.json"), "--steps", "3")
    code, out, err = run(*words, "--also-single-process")
    assert code == 0, err
    assert "loss nan" in out
    assert "all 3 losses are bitwise equal" in out
    assert "on 2 ranks: the loss is not finite from step 1 on; --check-finite stops at the first" in err
    code, _, err = run(*words, "--check-finite", "-q")
    assert code == 1
    assert "not finite" in err
    assert "step 1" in err
    code, _, err = run("check", str(folder / "plan.json"), "--numerics", words[1])
    assert code == 2
    assert "the loss of a single process is nan at step 1, so results cannot be compared" in err


# Whoever starts the tests in the background has them ignore Ctrl-C, and this would inherit it.
INTERRUPTIBLE = """
import signal
from penstock.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


def test_ctrl_c_ends_all_and_keeps_what_there_is(folder: Path, script: Callable[..., str], tmp_path: Path) -> None:
    output = tmp_path / "timeline.json"
    path = script("time.sleep(0.2)")
    words = ["train", path, "--plan", str(folder / "plan.json"), "--steps", "500", "-o", str(output)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "(1 of 500)" not in line and "step" in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "error: interrupted" in err
    assert "An iteration was predicted to take " in out
    assert penstock.load_timeline(output).origin == "measured"
    left = subprocess.run(["pgrep", "-f", shlex.quote(path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--global-batch-size", "2"), "global batch size (2) is smaller than the plan's number of micro-batches (3)"),
        (("--steps", "0"), "'--steps': 0 is out of range: use at least 1"),
        (("--nnodes", "2"), "--nnodes > 1 requires --rdzv-endpoint"),
        (
            ("--nnodes", "2", "--rdzv-endpoint", "h:1", "--node-rank", "2"),
            "node rank 2 must be less than the number of hosts (2)",
        ),
        (("--rdzv-endpoint", "h:1"), "--rdzv-endpoint requires --nnodes > 1"),
        (("--profile", "gpt2"), "the plan covers 6 layers"),
    ],
)
def test_bad_options(run: Run, folder: Path, script: Callable[..., str], words: tuple[str, ...], said: str) -> None:
    code, out, err = run("train", script(), "--plan", str(folder / "plan.json"), *words)
    assert (code, out) == (2, "")
    assert said in err


def test_files_that_are_not_there(run: Run, folder: Path, script: Callable[..., str]) -> None:
    plan = str(folder / "plan.json")
    assert "none.py: no such file" in run("train", "none.py", "--plan", plan)[2]
    assert "this is not a Python script" in run("train", "gpt2", "--plan", plan)[2]
    code, out, err = run("train", script(), "--plan", plan, "--checkpoint", plan)
    assert (code, out) == (2, "")
    assert "--checkpoint needs a directory, but this is a file" in err
    assert "is an input of this command" in run("train", script(), "--plan", plan, "-o", plan)[2]
    assert "--force cannot be used with --numerics" in run("check", plan, "--force", "--numerics", script())[2]


def test_ranks_of_several_hosts(run: Run, folder: Path, script: Callable[..., str]) -> None:
    words = ("--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "10.0.0.1:29501", "--dry-run")
    code, out, _ = run("train", script(), "--plan", str(folder / "plan.json"), *words)
    assert code == 0
    found = shlex.split(out)
    assert found[3:15] == [
        *("--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1", "--master-port", "29501"),
        *("--nproc-per-node", "1", "-m", "penstock.launch.ranks.train_main"),
    ]


def test_it_goes_on_from_a_checkpoint(
    run: Run, folder: Path, script: Callable[..., str], whole: Whole, tmp_path: Path
) -> None:
    words = ("train", script(), "--plan", str(folder / "plan.json"), *OPTIONS)
    kept = str(tmp_path / "kept")
    code, _, _ = run(*words, "--steps", "3", "--checkpoint", kept, "--save-every", "2")
    assert code == 0
    # Their names count iterations, of which a step has two.
    assert sorted(path.name for path in Path(kept).glob("step-*")) == ["step-00000004", "step-00000006"]
    code, out, _ = run(*words, "--steps", str(NUM_STEPS), "--checkpoint", kept)
    assert code == 0
    found = json.loads(out)
    assert [(step["step"], step["loss"]) for step in found["steps"]] == [
        (step["step"], step["loss"]) for step in json.loads(whole.outcome[1])["steps"][3:]
    ]
    assert any("after 3 steps" in note for note in found["notes"])
    code, out, _ = run(*words, "--steps", str(NUM_STEPS), "--checkpoint", kept)
    assert code == 0
    assert json.loads(out)["steps"] == []


def test_ranks_do_not_outlive_the_command(folder: Path, script: Callable[..., str]) -> None:
    path = script("time.sleep(0.2)")
    words = ["train", path, "--plan", str(folder / "plan.json"), "--steps", "500"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *words], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert next(line for line in process.stdout if "step 0" in line)
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 30
    while left := subprocess.run(["pgrep", "-f", path], capture_output=True, text=True, check=False).stdout:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_a_plan_for_another_model_is_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    """A model with as many layers, one of them wider: training, its reference and the check of numerics name it."""
    path, plan = tmp_path / "wider.py", str(folder / "plan.json")
    wider = SCRIPT.replace("nn.Linear(6, 16)", "nn.Linear(6, 24)").replace("nn.Linear(16, 16)", "nn.Linear(24, 16)")
    path.write_text(wider.replace("FAULT", "pass"))
    for words in (("train", "--steps", "2"), ("train", "--steps", "2", "--also-single-process"), ("check",)):
        inputs = (str(path), "--plan", plan) if words[0] == "train" else (plan, "--numerics", str(path))
        code, _, err = run(*words, *inputs)
        assert code == 2, err
        assert err.count("error: ") == 1
        assert "Traceback" not in err
        # (6 x 24 + 24) x 4 bytes, and (6 x 16 + 16) x 4.
        assert "another model ('tiny'): layer '0' of this model has 672 B of parameters, but it has 448 B" in err
        assert "Profile this model" in err
