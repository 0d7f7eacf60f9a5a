"""Slurm's host lists: node[01-16,20] is node01 to node16 and node20."""

import re
from itertools import product

from penstock.errors import InputError

MAX_NAMES = 65_536
_RANGE = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?\Z")
_PART = re.compile(r"[^\[\],\s]+|\[[^\[\]]*\]")
_HINT = "Separate names by commas, and write ranges in brackets: node[01-16,20],login1."


def expand(text: str, *, where: str) -> list[str]:
    """Expand a host list to its names, in order.

    >>> expand("node[01-03,20],login1", where="")
    ['node01', 'node02', 'node03', 'node20', 'login1']
    >>> expand("r[1-2]n[7-8]", where="")
    ['r1n7', 'r1n8', 'r2n7', 'r2n8']
    """
    names: list[str] = []
    for item in _split(text.strip(), where):
        parts = [_choices(part, where) if part.startswith("[") else [part] for part in _PART.findall(item)]
        number = 1
        for part in parts:
            number *= len(part)
        if number + len(names) > MAX_NAMES:
            raise InputError(f"{_short(text)} has more than {MAX_NAMES:,} names", where=where, hint=_HINT)
        names += ["".join(choice) for choice in product(*parts)]
    return names


def _split(text: str, where: str) -> list[str]:
    """Split at the commas outside brackets."""
    items, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1) or character.isspace():
            raise InputError(f"{_short(text)} is not a host list", where=where, hint=_HINT)
        if character == "," and depth == 0:
            items.append(text[start:position])
            start = position + 1
    items.append(text[start:])
    if depth or not all(items):
        raise InputError(f"{_short(text)} is not a host list", where=where, hint=_HINT)
    return items


def _choices(part: str, where: str) -> list[str]:
    numbers: list[str] = []
    for item in part[1:-1].split(","):
        match = _RANGE.match(item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first or last - first >= MAX_NAMES:
            raise InputError(f"{_short(item)} is not a range of numbers", where=where, hint=_HINT)
        # Leading zeros are part of the names.
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
        if len(numbers) > MAX_NAMES:
            raise InputError(f"{_short(part)} has more than {MAX_NAMES:,} names", where=where, hint=_HINT)
    return numbers


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
