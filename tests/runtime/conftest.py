"""One world for all tests here."""

from collections.abc import Iterator

import pytest

from runtime.world import World


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()
