"""One world for all tests here, and processes that live for one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runtime.forkserver import Function, Life, Start
from tests.support.runtime.world import World


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts so many ranks, each a process that runs this and ends."""
    begun: list[Life] = []

    def make(function: Function, num_ranks: int) -> list[Life]:
        made = [Life(function, tmp_path / "meeting", rank) for rank in range(num_ranks)]
        begun.extend(made)
        return made

    yield make
    for life in begun:
        life.kill()
