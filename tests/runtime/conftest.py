"""Ranks for the tests here: a pool that they share, and processes that run for one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runtime.forkserver import Function, RankProcess, Start
from tests.support.runtime.rank_pool import RankPool


@pytest.fixture(scope="session")
def rank_pool() -> Iterator[RankPool]:
    """Ranks over gloo. Processes that a test breaks are replaced before the next one."""
    pool = RankPool()
    yield pool
    pool.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a number of ranks, each a process that runs a function and ends."""
    started: list[RankProcess] = []

    def start_ranks(function: Function, num_ranks: int) -> list[RankProcess]:
        processes = [RankProcess(function, tmp_path / "store", rank) for rank in range(num_ranks)]
        started.extend(processes)
        return processes

    yield start_ranks
    for process in started:
        process.kill()
