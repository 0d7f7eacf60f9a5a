"""Property tests look at new random cases in every local run, and at the same ones in every run of CI.

What a test measures and does not judge (`record_property("measured ...", value)`) is shown at the end.
"""

import os

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole-grid", action="store_true", help="train by every planner with every schedule")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name.startswith("measured"):
                terminalreporter.write_line(f"{name}: {value}")
