"""The results of a self-test, and their file."""

from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from penstock import io
from penstock.launch.selftest.environment import Environment

FORMAT = "penstock.selftest/1"


class Verdict(StrEnum):
    """What came of a check."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one check gave."""

    name: str
    verdict: Verdict
    command: str
    seconds: float = 0.0
    exit_code: int | None = None
    """None: the command was not started, or did not end in time."""
    reason: str = ""
    """Why the check was skipped or failed."""
    data: Any = None
    """The JSON output of the command."""
    errors: str = ""
    """The end of its standard error."""


class Selftest(msgspec.Struct, frozen=True, kw_only=True):
    """All results."""

    format: str = FORMAT
    environment: Environment
    device: str
    num_ranks: int
    checks: tuple[CheckResult, ...]

    @property
    def has_failed(self) -> bool:
        """Whether any check failed."""
        return any(item.verdict is Verdict.FAILED for item in self.checks)


def save_selftest(result: Selftest, path: str | Path) -> None:
    """Write the results as JSON.

    Raises:
        FileError: The file cannot be written.
    """
    io.write_whole(path, io.encode_json(result))
