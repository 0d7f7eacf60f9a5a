"""Proof that a property test reaches its subject: counts over its examples, with a minimum for each.

    @reaches(loaded=0.05)
    @examples(100)
    @given(data=st.data())
    def test_fuzz(data: st.DataObject) -> None:
        ...
        reach("loaded")

fails if fewer than 5 % of the examples call `reach("loaded")`, so that a reader that refuses every file does not pass.

Hypothesis draws many examples that resemble earlier ones, and constants of all loaded modules: what a few dozen
examples reach varies with the tests that run beside this one. So a test that misses a share goes on with further
examples, up to `ROUNDS` times as many in total, and fails if the share is missed over all of them.
"""

from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from hypothesis import seed

P = ParamSpec("P")

ROUNDS = 5

_reached: set[str] = set()
"""What the current example has reached."""


def reach(name: str, condition: object = True) -> None:
    """Note that the current example reaches what `name` stands for, if the condition is true."""
    if condition:
        _reached.add(name)


def reaches(**shares: float) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Require of a property test that a share of its examples, and at least one, reaches each name.

    Stands above `@given`. Shares hold for random examples too: choose them well below what is usual.
    """

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        counts: Counter[str] = Counter()
        handle = test.hypothesis  # type: ignore[attr-defined]
        inner = handle.inner_test

        @wraps(inner)
        def counted(*arguments: Any, **named: Any) -> Any:
            _reached.clear()
            result = inner(*arguments, **named)
            counts.update(["examples", *_reached])
            return result

        handle.inner_test = counted

        def missed() -> list[str]:
            return [name for name, share in shares.items() if counts[name] < max(1.0, share * counts["examples"])]

        @wraps(test)
        def checked(*arguments: P.args, **named: P.kwargs) -> None:
            counts.clear()
            test(*arguments, **named)
            for number in range(1, ROUNDS):
                if not missed():
                    break
                seed(number)(test)(*arguments, **named)
            seed(None)(test)
            for name in missed():
                raise AssertionError(f"only {counts[name]} of {counts['examples']} examples reach {name!r}")

        return checked

    return decorate
