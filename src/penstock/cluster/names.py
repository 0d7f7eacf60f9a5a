"""Names in messages: abbreviated lists, and suggestions for misspelled names."""

import difflib
from collections.abc import Iterable

_MAX_COMPARED = 4096


def list_names(names: Iterable[str], *, most: int = 3) -> str:
    """Join the first names, and count the rest.

    >>> list_names(["a", "b"]), list_names("abcde")
    ('a, b', 'a, b, c and 2 more')
    """
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def suggest_names(wrong: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the most similar known name, else the first known names.

    Example:
        >>> suggest_names("alpa", ["alpha", "beta"]), suggest_names("x", ["alpha", "beta"])
        ("Did you mean 'alpha'?", 'Known names: alpha, beta.')
    """
    # Comparisons take time, so both the number of names and the length of the unknown one are limited.
    names = list(known)[:_MAX_COMPARED]
    near = difflib.get_close_matches(wrong[:100], names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known names: {list_names(names, most=6)}."
