"""Processes with the test device. The test's own process does not load it: torch would use it everywhere."""

from collections.abc import Iterator

import pytest

from tests.support.late_device.build import build
from tests.support.late_device.ranks import GROUP_BACKEND, prepare_rank
from tests.support.runtime.rank_pool import Deadlines, RankPool


@pytest.fixture(scope="session")
def late_pool() -> Iterator[RankPool]:
    """Ranks whose tensors are on the test device, over the strict process group."""
    build()  # before the deadlines of the pool start
    deadlines = Deadlines(call_s=60, margin_s=10)
    pool = RankPool(backend=GROUP_BACKEND, deadlines=deadlines, prepare=prepare_rank)
    yield pool
    pool.close()
