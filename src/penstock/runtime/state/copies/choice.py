"""Which copies to restore from: the newest state of which all parts have survived."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class FoundPart(NamedTuple):
    """A complete copy of a part of the state, in the memory of a host."""

    holder: int
    """The rank that reads it: one of its host."""
    generation: int
    step: int
    """The number of steps that the state has."""
    key: str
    needs: tuple[tuple[str, ...], ...]
    """Of each tuple of keys at least one part is needed (`CopyPlan.needs`)."""
    names: tuple[str, ...] = ()
    """The entries in it."""
    file: str = ""
    """The name of its file on that host."""


class CopyChoice(NamedTuple):
    """The state to restore."""

    generation: int
    step: int
    parts: tuple[FoundPart, ...]
    """All its parts that were found, those on several hosts several times."""


def choose_copies(found: Sequence[FoundPart]) -> CopyChoice | None:
    """Choose the newest complete state; None if no state is complete.

    States of different generations are never mixed: the same step, repeated under another plan, may have other
    rounding. A newer generation began with a complete state of the one before.

    Example:
        >>> needs = (("0.single",), ("1.single",))
        >>> parts = [FoundPart(0, 0, step, key, needs) for step, key in ((4, "0.single"), (3, "0.single"))]
        >>> choose_copies([*parts, FoundPart(1, 0, 3, "1.single", needs)]).step
        3
    """
    states: defaultdict[tuple[int, int], list[FoundPart]] = defaultdict(list)
    for part in found:
        states[part.generation, part.step].append(part)
    for (generation, step), parts in sorted(states.items(), reverse=True):
        keys = {part.key for part in parts}
        if all(keys.intersection(alternatives) for alternatives in parts[0].needs):
            return CopyChoice(generation, step, tuple(sorted(parts, key=lambda part: (part.key, part.holder))))
    return None
