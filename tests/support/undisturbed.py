"""A decorator for tests that assert times: they run alone, and have several attempts, as the machine may be busy."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec

import pytest

ATTEMPTS = 3

P = ParamSpec("P")


def undisturbed(test: Callable[P, None]) -> Callable[P, None]:
    """Mark a test as `timed` and repeat it up to twice after a failed assertion.

    Assertions that do not depend on time use `must`, which fails at once.
    """

    @pytest.mark.timed
    @wraps(test)
    def attempt(*arguments: P.args, **named: P.kwargs) -> None:
        for _ in range(ATTEMPTS - 1):
            with suppress(AssertionError):
                return test(*arguments, **named)
        return test(*arguments, **named)

    return attempt


def must(holds: bool, message: object) -> None:
    """Assert a condition that does not depend on time."""
    if not holds:
        pytest.fail(str(message))
