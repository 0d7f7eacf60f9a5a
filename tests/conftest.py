"""Options and settings of all tests.

Property tests use the same examples in every run, so that a run that passes passes again. With `--thorough` they use
new random examples and more of them, and training is tested with every planner and every schedule.

The summary shows measurements without a target (`record_property("measured ...", value)`).
"""

import pytest
from hypothesis import settings

from tests.support.thoroughness import THOROUGH

REPEATABLE = "repeatable"

pytest_plugins = ["tests.support.command_line"]

settings.register_profile(REPEATABLE, derandomize=True)
settings.register_profile(THOROUGH)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="more random cases, every planner with every schedule")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile(THOROUGH if config.getoption("--thorough") else REPEATABLE)


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--thorough"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name.startswith("measured"):
                terminalreporter.write_line(f"{name}: {value}")
