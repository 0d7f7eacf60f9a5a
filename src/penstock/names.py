"""Names in messages: abbreviated lists, and suggestions for misspelled names of any sort."""

import difflib
from collections.abc import Iterable
from pathlib import Path

MAX_NAME_LENGTH = 1_000
_MAX_COMPARED = 4096
_MIN_BEGINNING = 3
"""A name of this length or more that begins a known name stands for it, whatever their similarity."""


def check_name_lengths(names: Iterable[str]) -> None:
    """Check that names can be shown and compared.

    Raises:
        ValueError: A name has more than `MAX_NAME_LENGTH` characters.
    """
    for name in names:
        if len(name) > MAX_NAME_LENGTH:
            raise ValueError(
                f"the name {name[:40]!r}... has {len(name):,} characters; at most {MAX_NAME_LENGTH:,} are possible"
            )


def list_names(names: Iterable[str], *, most: int = 3) -> str:
    """Join the first names, and count the rest.

    >>> list_names(["a", "b"]), list_names("abcde")
    ('a, b', 'a, b, c and 2 more')
    """
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def near_names(wrong: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known names that are most similar to an unknown one, without regard to upper and lower case.

    Args:
        wrong: The unknown name.
        known: The known names.
        most: How many names to return at most.
        cutoff: How similar they must be, from 0 to 1.

    Example:
        >>> near_names("1F1B", ["gpipe", "1f1b"]), near_names("T5", ["T4", "L4"], cutoff=0.5), near_names("x", ["abc"])
        (['1f1b'], ['T4'], [])
        >>> near_names("A100", ["H100", "A100-80", "A100-40"], most=2)
        ['A100-80', 'A100-40']
    """
    # Comparisons take time, so both the number of names and the length of the unknown one are limited.
    by_lower: dict[str, str] = {}
    for name in list(known)[:_MAX_COMPARED]:
        by_lower.setdefault(name.lower(), name)
    lower = wrong[:100].lower()
    if lower in by_lower:
        return [by_lower[lower]]
    begun = [name for known_lower, name in by_lower.items() if known_lower.startswith(lower)]
    if begun and len(lower) >= _MIN_BEGINNING:
        return begun[:most]
    return [by_lower[near] for near in difflib.get_close_matches(lower, by_lower, n=most, cutoff=cutoff)]


def ask_names(near: Iterable[str]) -> str:
    """Return the question whether one of these names was meant; empty without a name.

    >>> ask_names(["T4", "L4"]), ask_names([])
    ("Did you mean 'T4' or 'L4'?", '')
    """
    quoted = " or ".join(map(repr, near))
    return f"Did you mean {quoted}?" if quoted else ""


def suggest_names(wrong: str, known: Iterable[str], *, label: str = "Known names", most: int = 6) -> str:
    """Return a hint for an unknown name: the most similar known name, else the first known names.

    Args:
        wrong: The unknown name.
        known: The known names.
        label: What the known names are, for a list of them.
        most: How many of them to list at most.

    Example:
        >>> suggest_names("alpa", ["alpha", "beta"]), suggest_names("x", ["alpha", "beta"])
        ("Did you mean 'alpha'?", 'Known names: alpha, beta.')
    """
    names = list(known)
    return ask_names(near_names(wrong, names)) or f"{label}: {list_names(names, most=most)}."


def suggest_files(path: str | Path) -> list[str]:
    """Return the most similar file of the same folder, with the folder as written; empty if there is none."""
    path = Path(path)
    try:
        names = [item.name for item in path.parent.iterdir()]
    except (OSError, ValueError):  # no such folder, or not a path
        return []
    return [str(path.with_name(near)) for near in near_names(path.name, names, cutoff=0.75)] if path.name else []
