"""Ranks for the tests here."""

from collections.abc import Iterator

import pytest

from tests.support.runtime.rank_pool import RankPool


@pytest.fixture(scope="session")
def rank_pool() -> Iterator[RankPool]:
    """Ranks over gloo. Processes that a test breaks are replaced before the next one."""
    pool = RankPool()
    yield pool
    pool.close()
