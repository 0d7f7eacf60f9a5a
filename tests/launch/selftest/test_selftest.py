"""The self-test: what it lists, how it judges, and that a check that fails or hangs does not end it."""

import json
from pathlib import Path

import pytest
import torch

from penstock.launch.selftest import (
    Check,
    CheckResult,
    Selftest,
    Verdict,
    describe_machine,
    list_checks,
    run_selftest,
    save_selftest,
)
from penstock.launch.selftest.models import transformer as plain
from penstock.launch.selftest.models import waiting_transformer as waiting
from tests.support.command_line import Run
from tests.support.thoroughness import is_thorough


def test_every_check_has_what_it_needs() -> None:
    written = {"checkpoints"}
    for check in list_checks(2, "cpu"):
        assert set(check.needs) <= written, check.name
        written |= {check.arguments[place + 1] for place, word in enumerate(check.arguments) if word == "-o"}
    names = [check.name for check in list_checks(2, "cuda")]
    assert len(names) == len(set(names)) == 17
    assert [check.name for check in list_checks(2, "cpu") if check.skipped] == ["train with device-wide waits"]
    assert not any(check.skipped for check in list_checks(2, "cuda"))


def test_verdicts() -> None:
    check = Check("one", (), expected=(("holds", True),))
    assert check.verdict(0, {"holds": True}) is Verdict.OK
    assert check.verdict(0, {"holds": False}) is Verdict.FAILED
    assert check.verdict(0, None) is Verdict.FAILED
    assert check.verdict(1, {"holds": True}) is Verdict.FAILED


def test_one_check_does_not_end_or_delay_the_others(tmp_path: Path) -> None:
    hanging = "import time; time.sleep(60)"
    (tmp_path / "hang.py").write_text(f"def make_model():\n    {hanging}\n")
    checks = [
        Check("works", ("profile", "gpt2", "--kind", "T4", "-o", "profile.json")),
        Check("needs it", ("plan", "--profile", "profile.json", "--cluster", "2 x T4 @ 1 GB/s"), ("profile.json",)),
        Check("fails", ("plan", "--profile", "absent.json", "--cluster", "2 x T4 @ 1 GB/s", "-o", "plan.json")),
        Check("needs the failed", ("check", "plan.json"), ("plan.json",)),
        Check("hangs", ("profile", f"{tmp_path}/hang.py:make_model"), limit_s=1.5),
        Check("does not apply", ("--version",), skipped="no reason"),
    ]
    seen: list[CheckResult] = []
    results = run_selftest(checks, seen.append)
    assert list(results) == seen
    assert [item.verdict.value for item in results] == ["ok", "ok", "failed", "skipped", "failed", "skipped"]
    assert results[1].data["num_actions"] > 0
    assert "absent.json" in results[2].errors
    assert results[2].exit_code == 2
    assert results[3].reason == "an earlier check has not written plan.json"
    assert results[4].reason == "no end after 1.5 s"
    assert results[4].exit_code is None
    path = tmp_path / "selftest.json"
    found = Selftest(environment=describe_machine("cpu"), device="cpu", num_ranks=2, checks=results)
    save_selftest(found, path)
    assert found.has_failed
    assert json.loads(path.read_text())["checks"][0]["name"] == "works"


def test_the_waiting_model_computes_the_same() -> None:
    torch.manual_seed(0)
    one, inputs, _, _ = plain.make_model()
    other, same, _, _ = waiting.make_model()
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.eval()(inputs), other.eval()(same))
    assert [name for name, _ in one.named_parameters()] == [name for name, _ in other.named_parameters()]


def test_too_few_devices(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run("selftest", "--device", "abacus")
    assert (code, out) == (2, "")
    assert "abacus" in err


@pytest.mark.skipif(not is_thorough(), reason="minutes: with --thorough")
def test_it_passes_here(run: Run, tmp_path: Path) -> None:
    code, out, err = run("selftest", "--device", "cpu", "-o", str(tmp_path / "selftest.json"))
    assert code == 0, out + err
