"""Names in sentences: lists that stay short, and the names that a wrong one may have meant."""

import difflib
from collections.abc import Iterable

_MAX_COMPARED = 4096


def listed(names: Iterable[str], *, most: int = 3) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b"]), listed("abcde")
    ('a, b', 'a, b, c and 2 more')
    """
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def near_names(wrong: str, known: Iterable[str]) -> str:
    """A hint with the known name that is nearest to the wrong one, else with the first ones.

    >>> near_names("alpa", ["alpha", "beta"]), near_names("x", ["alpha", "beta"])
    ("Did you mean 'alpha'?", 'There are: alpha, beta.')
    """
    # Comparing costs time with every name, and nobody reads the hint of a name of a kilobyte.
    names = list(known)[:_MAX_COMPARED]
    near = difflib.get_close_matches(wrong[:100], names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {listed(names, most=6)}."
