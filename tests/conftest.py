"""Options and settings of all tests.

Property tests use new random examples in every local run, and the same ones in every run of CI. With `--thorough` they
use more, and training is tested with every planner and every schedule.

The summary shows measurements without a target (`record_property("measured ...", value)`).
"""

import os

import pytest
from hypothesis import settings

from tests.support.thoroughness import THOROUGH

pytest_plugins = ["tests.support.command_line"]

settings.register_profile("ci", derandomize=True)
settings.register_profile(THOROUGH)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="more random cases, every planner with every schedule")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--thorough"):
        settings.load_profile(THOROUGH)
    elif os.environ.get("CI"):
        settings.load_profile("ci")


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--thorough"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name.startswith("measured"):
                terminalreporter.write_line(f"{name}: {value}")
