"""The packages of training engines: tests that need one are skipped where it is not installed."""

import importlib.util
import warnings
from types import ModuleType

import pytest


def engine_module(name: str) -> ModuleType:
    """Import a module of an engine, or skip the test. Engines warn when they are imported."""
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: make test-exports")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)
