"""For tests that judge seconds: nothing else may run beside them, and even so the machine may be busy with others'."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec

import pytest

ATTEMPTS = 3

P = ParamSpec("P")


def undisturbed(test: Callable[P, None]) -> Callable[P, None]:
    """The test marked as `timed`, with a second and a third attempt: what is wrong every time is wrong.

    Only what is asserted has them. What has nothing to do with time fails at once, by `must`.
    """

    @pytest.mark.timed
    @wraps(test)
    def attempt(*given: P.args, **named: P.kwargs) -> None:
        for _ in range(ATTEMPTS - 1):
            with suppress(AssertionError):
                return test(*given, **named)
        return test(*given, **named)

    return attempt


def must(holds: bool, told: object) -> None:
    """For what a busy machine does not excuse."""
    if not holds:
        pytest.fail(str(told))
