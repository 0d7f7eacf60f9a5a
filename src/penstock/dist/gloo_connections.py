"""Connections of gloo: each is made when two ranks first exchange something, not all at once.

By default a gloo group connects every rank with every other one. At 1,024 ranks that is more connections than a process
may have open.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LAZY = "TORCH_GLOO_LAZY_INIT"
"""The environment variable that torch reads when a gloo group is created."""


@contextmanager
def connect_when_used() -> Iterator[None]:
    """Let gloo groups that are created in the context connect two ranks at their first message.

    The side that gloo has chosen to connect blocks until the other one uses the connection, too.
    """
    before = os.environ.get(LAZY)
    os.environ[LAZY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[LAZY]
        else:
            os.environ[LAZY] = before


def raise_connection_limit() -> None:
    """Allow as many open connections as the system permits. Rank 0 may host a store that all ranks connect to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
