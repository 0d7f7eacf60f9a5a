"""Options and settings of all tests.

Property tests use the same examples in every run, so that a run that passes passes again. With `--thorough` they use
new random examples and more of them, and training is tested with every planner and every schedule.

The summary shows measurements without a target (`record_property("measured ...", value)`).
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.support.thoroughness import THOROUGH

REPEATABLE = "repeatable"

pytest_plugins = ["tests.support.command_line"]

# On a busy machine, examples are drawn slowly and take long, which is no fault of a test.
settings.register_profile(REPEATABLE, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(THOROUGH, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="more random cases, every planner with every schedule")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--thorough"):
        settings.load_profile(THOROUGH)
    else:
        settings.load_profile(REPEATABLE)
        # Hypothesis also draws constants from the project's modules that are loaded so far. Then the examples would
        # depend on which tests run in this process, and in which order.
        providers._get_local_constants = Constants


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--thorough"))


@pytest.fixture(scope="session", autouse=True)
def _own_cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests and their subprocesses keep the measured runtime overhead here, not in the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name.startswith("measured"):
                terminalreporter.write_line(f"{name}: {value}")
