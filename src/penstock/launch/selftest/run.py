"""Running the checks of a self-test, each as a process of its own, so that none can end or delay the others."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from penstock.dist import Launcher, run_dir
from penstock.launch.selftest.checks import Check
from penstock.launch.selftest.results import CheckResult, Verdict

MAX_ERRORS = 4_000
"""Characters of standard error that are kept."""


def run_selftest(checks: Sequence[Check], on_result: Callable[[CheckResult], None]) -> tuple[CheckResult, ...]:
    """Run checks in a temporary directory.

    Args:
        checks: The checks, in order.
        on_result: Called with each result.
    """
    results = []
    with run_dir("penstock-selftest-") as folder:
        for check in checks:
            results.append(_run(check, folder))
            on_result(results[-1])
    return tuple(results)


def _run(check: Check, folder: Path) -> CheckResult:
    shown = "penstock " + shlex.join(item.replace(str(Path(__file__).parent), "...") for item in check.arguments)
    missing = [name for name in check.needs if not (folder / name).exists()]
    if check.skipped or missing:
        reason = check.skipped or f"an earlier check has not written {missing[0]}"
        return CheckResult(name=check.name, verdict=Verdict.SKIPPED, command=shown, reason=reason)
    began_s = time.monotonic()
    output, errors = folder / "output", folder / "errors"
    program = "import os, sys; os.chdir(sys.argv.pop(1)); from penstock.cli.main import main; main()"
    with Launcher() as launcher:
        command = [sys.executable, "-c", program, str(folder), *check.arguments, "--json"]
        process = launcher.start(command, os.environ, stdout=output, stderr=errors)
        has_ended = launcher.wait(limit_s=check.limit_s)
    seconds, code = time.monotonic() - began_s, process.code if has_ended else None
    data = _read_json(output)
    verdict = Verdict.FAILED if code is None else check.verdict(code, data)
    reason = (
        "" if verdict is Verdict.OK else f"no end after {check.limit_s:g} s" if code is None else f"exit code {code}"
    )
    return CheckResult(
        name=check.name,
        verdict=verdict,
        command=shown,
        seconds=seconds,
        exit_code=code,
        reason=reason,
        data=data,
        errors=errors.read_text(errors="replace")[-MAX_ERRORS:],
    )


def _read_json(path: Path) -> object:
    try:
        found: object = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError:
        return None
    return found
