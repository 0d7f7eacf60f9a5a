"""Misspelled commands, options, values and files: the error names what was probably meant."""

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "tuple[int, str, str]"]

PROBLEM = ("--profile", "gpt2", "--cluster", "2 x T4 @ 1 GB/s")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("emulat",), "no such command: 'emulat'. Did you mean 'emulate'?"),
        (("Train",), "Did you mean 'train'?"),
        (("xyzzy",), "no such command: 'xyzzy'. Commands: profile, cluster, plan,"),
        (("cluster", "shw"), "Did you mean 'show'?"),
        (("--versoin",), "Did you mean '--version'?"),
        (("plan", "--rows", "4"), "no such option: --rows. Did you mean '--micro-batch-size'?"),
        (("plan", "--batch", "4"), "Did you mean '--global-batch-size'?"),
        (("plan", "--microbatches", "4"), "Did you mean '--num-microbatches'?"),
        (("plan", "--pipeline-model-parallel-size", "4"), "Did you mean '--pipeline-depth'?"),
        (("plan", "--micro_batch_size", "4"), "Did you mean '--micro-batch-size'?"),
        (("train", "--train-iters=4"), "Did you mean '--steps'?"),
        (("train", "--nproc_per_node", "4"), "The plan states the number of ranks."),
        (("plan", "--chunk", "4"), "Did you mean '--chunks'?"),
        # Only options that the command has are suggested.
        (("report", "--rows", "4"), "no such option: --rows"),
        (("plan", *PROBLEM, "--schedule", "1F1B"), "unknown schedule '1F1B'\n  Did you mean '1f1b'?"),
        (("plan", *PROBLEM, "--planner", "Balanced"), "unknown planner 'Balanced'\n  Did you mean 'balanced'?"),
        (("plan", *PROBLEM, "--planner", "magic"), "Available planners: uniform, balanced, "),
        (("compare", *PROBLEM, "--planners", "dappel"), "Did you mean 'dapple'?"),
        (("profile", "gpt2", "--kind", "T5"), "no data sheet for device kind 'T5'\n  Did you mean 'T4'?"),
        (("profile", "gpt2", "--kind", "A100"), "Did you mean 'A100-80' or 'A100-40'?"),
        (("plan", "--profile", "gpt2", "--cluster", "2 x T5 @ 1 GB/s"), "'T5' is unknown: the profile 'gpt2'"),
        (("plan", *PROBLEM, "-m", "0"), "'--num-microbatches': 0 is out of range: use 1 to 65536."),
        (("train", "a.py", "--plan", "b", "--steps", "0"), "0 is out of range: use at least 1."),
        (("train", "a.py", "--plan", "b", "--timeout", "0"), "0.0 is out of range: use more than 0."),
    ],
)
def test_what_was_meant(run: Run, words: tuple[str, ...], said: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, ""), err
    assert err.count("error: ") == 1
    assert said in err


def test_choices_ignore_case(run: Run) -> None:
    words = ("plan", *PROBLEM, "-m", "2", "--planner", "uniform", "--schedule", "1f1b", "--shape", "STRAIGHT", "-q")
    assert run(*words)[0] == 0


def test_files_of_the_same_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gpt.json", "plan.json", "model.py"):
        (tmp_path / name).touch()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "lab.toml").touch()
    monkeypatch.chdir(tmp_path)
    for words, near in (
        (("profile", "gpt.jsn"), "gpt.json"),
        (("simulate", "pln.json"), "plan.json"),
        (("train", "modle.py", "--plan", "plan.json"), "model.py"),
        (("profile", "modle.py"), "model.py"),
        (("plan", "--profile", "gpt2", "--cluster", "deep/labs.toml"), "deep/lab.toml"),
    ):
        code, _, err = run(*words)
        assert code == 2
        assert "Did you mean" in err
        assert near in err.partition("Did you mean")[2], err
    assert "no such file\n  Check the path." in run("simulate", "nowhere/at/all.json")[2]


@pytest.mark.parametrize(("traits", "is_refused"), [("", True), ('memory = "16 GB"', True), ("speed = 0.5", False)])
def test_an_unknown_kind_needs_a_speed(run: Run, tmp_path: Path, traits: str, is_refused: bool) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(f'hosts = 1\ndevices_per_host = 2\nkind = "T5"\ninside = "1 GB/s"\n{traits}\n')
    code, _, err = run("plan", "--profile", "gpt2", "--cluster", str(path), "-m", "2", "--planner", "balanced", "-q")
    assert code == (2 if is_refused else 0), err
    assert ("the speed of device kind 'T5' is unknown" in err) == is_refused
    assert ("specify the speed of its devices in the cluster file" in err) == is_refused
