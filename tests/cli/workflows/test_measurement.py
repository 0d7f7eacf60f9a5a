"""penstock profile script.py:make_model."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

import penstock
from penstock.profiler.measurement import measure
from penstock.profiler.runtime_overhead import measure_overhead, solve_costs

Run = Callable[..., "tuple[int, str, str]"]

SCRIPT = """
import sys
import torch
from torch import nn
from beside import WIDTH

def loss(output, targets):
    return (output - targets).square().mean()

def make_model():
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 2)), torch.ones(4, WIDTH), loss, torch.ones(4, 2)

class Whole:
    def __init__(self):
        print("the script prints")
        self.model, self.inputs, self.loss, self.targets = make_model()

def as_dict():
    return vars(Whole())

def nothing():
    return None

def two():
    return make_model()[:2]

def no_module():
    return 3, 4, loss

def no_loss():
    return make_model()[0], torch.ones(4, WIDTH), 5

def fails():
    return missing_name

def leaves():
    sys.exit(3)

def fails_later():
    def wrong(output, targets):
        return output.nonsense
    return *make_model()[:2], wrong, torch.ones(4, 2)
"""


def _line(word: str) -> int:
    """Where the word is in the script."""
    return next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if word in line)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "beside.py").write_text("WIDTH = 6\n")
    path = tmp_path / "model.py"
    path.write_text(SCRIPT)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return str(path)


def test_a_model_is_measured_shown_and_written(run: Run, script: str, tmp_path: Path) -> None:
    path = str(tmp_path / "profile.json")
    code, out, err = run("profile", f"{script}:make_model", "--seconds", "0", "--threads", "1", "-o", path)
    assert code == 0, err
    assert "Sequential: one micro-batch of 4 rows on cpu-1-thread" in out
    assert "easured in 4 rounds over" in out
    assert out.rstrip().endswith(f'next: penstock plan --profile {path} --cluster "2 x cpu-1-thread @ 2 GB/s"')
    found = penstock.load_profile(path)
    assert [unit.name for unit in found.units] == ["0", "1", "2"]
    assert [size.micro_batch_size for size in found.units[0].sizes] == [4, 2]


def test_the_function_is_make_model_unless_said_otherwise(run: Run, script: str) -> None:
    code, out, err = run("profile", script, "--seconds", "0")
    assert code == 0, err
    assert "Sequential: one micro-batch of 4 rows" in out


def test_beside_others(run: Run, script: str) -> None:
    code, out, err = run("profile", f"{script}:make_model", "--seconds", "0", "--busy-processes", "2", "-v")
    assert code == 0, err
    assert "Measured while 2 other processes ran the same measurement." in out


def test_others_that_do_not_get_to_work(run: Run, script: str, tmp_path: Path) -> None:
    flag = tmp_path / "once"
    once = f"from pathlib import Path\nflag = Path({str(flag)!r})\nassert not flag.exists()\nflag.touch()\n"
    path = tmp_path / "once.py"
    path.write_text(once + Path(script).read_text())
    code, _, err = run("profile", f"{path}:make_model", "--seconds", "0", "--busy-processes", "1")
    assert code == 2
    assert "--busy-processes: a process did not start measuring" in err


def test_rows_blocks_and_json(run: Run, script: str) -> None:
    options = ("--seconds", "0", "--micro-batch-size", "3,6", "--blocks", "0,2", "--json")
    code, out, err = run("profile", f"{script}:Whole", *options)
    assert code == 0, err
    assert "the script prints" in err
    found = json.loads(out)
    assert [unit["name"] for unit in found["units"]] == ["0", "2"]
    assert found["micro_batch_size"] == 6
    assert not list(Path().glob("*.profile.json"))
    assert [size["micro_batch_size"] for size in found["units"][0]["sizes"]] == [6, 3]


def test_a_dict_will_do_and_the_result_is_written_to_a_file_of_its_own(run: Run, script: str, tmp_path: Path) -> None:
    (tmp_path / "model-as_dict.profile.json").write_text("an earlier result")
    code, out, err = run("profile", f"{script}:as_dict", "--seconds", "0")
    assert code == 0, err
    assert (tmp_path / "model-as_dict.profile.json").read_text() == "an earlier result"
    assert "wrote model-as_dict-2.profile.json\n" in out
    assert "next: penstock plan --profile model-as_dict-2.profile.json --cluster " in out
    assert penstock.load_profile("model-as_dict-2.profile.json").num_units == 3


def test_overheads_below_the_noise_are_a_warning(run: Run, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Plans with more actions that take no more time, as on a busy machine.
    monkeypatch.setattr("penstock.profiler.runtime_overhead.solve_costs", lambda _seconds: solve_costs([1.0] * 4))
    # Measured again, and not kept for the tests after this one.
    monkeypatch.setattr("penstock.profiler.runtime_overhead.measure_overhead", measure_overhead.__wrapped__)
    code, out, err = run("profile", script, "--seconds", "0", "-v")
    assert code == 0, err
    assert "warning: the runtime's overhead per action and per message could not be distinguished from noise" in err
    assert "Measured overhead of the runtime: not distinguishable from noise per action, assumed none; " in out
    assert ": 0 s per" not in out


def test_unsteady_times_are_a_warning(run: Run, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.workflows.measurement.measure", partial(measure, steady=0.0))
    code, _, err = run("profile", f"{script}:make_model", "--seconds", "0", "-q")
    assert code == 0
    assert "warning: the times are only steady to " in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((":nothing",), "model.py:nothing: the function returned an object of type NoneType"),
        ((":two",), "the function returned 2 values"),
        ((":no_module",), "the model is a int, not an nn.Module"),
        ((":no_loss",), "the loss is a int and is not callable"),
        ((":fails",), f"model.py, line {_line('missing_name')}: NameError: name 'missing_name' is not defined"),
        ((":leaves",), "the script called sys.exit (exit code 3)"),
        ((":fails_later",), f"model.py, line {_line('nonsense')}: AttributeError"),
        ((":unknown",), "the script has no function 'unknown'"),
        ((":make_model", "--kind", "T4"), "--kind: only valid for computed profiles"),
        ((":make_model", "--blocks", "0,9"), "has no submodule '9'"),
        ((":make_model", "--micro-batch-size", "two"), "'two' is not an integer"),
        ((":make_model", "--micro-batch-size", "0"), "at least 1, not 0"),
    ],
)
def test_clear_errors(run: Run, script: str, words: tuple[str, ...], said: str) -> None:
    code, out, err = run("profile", script + words[0], *words[1:], "--seconds", "0")
    assert (code, out) == (2, ""), err
    assert said in err
    assert "Traceback" not in err


def test_a_script_that_does_not_load(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    assert "broken.py: no such file" in run("profile", f"{path}:make_model")[2]
    path.write_text("def make_model(:\n")
    assert "broken.py, line 1: SyntaxError" in run("profile", f"{path}:make_model")[2]
    path.write_text("\nimport no_such_module_anywhere\n")
    assert "broken.py, line 2: ModuleNotFoundError" in run("profile", f"{path}:make_model")[2]


def test_options_for_measuring_only(run: Run) -> None:
    for words in (("--seconds", "3"), ("--threads", "1"), ("--blocks", "a"), ("--busy-processes", "1")):
        code, _, err = run("profile", "gpt2", *words)
        assert code == 2
        assert f"{words[0]}: only valid for measured models" in err
    assert "only measured models accept several sizes" in run("profile", "gpt2", "--micro-batch-size", "2,4")[2]


def test_a_script_is_not_written_over(run: Run, script: str) -> None:
    assert "is an input of this command" in run("profile", f"{script}:make_model", "-o", script)[2]
    assert Path(script).read_text() == SCRIPT
