"""Slurm's short form of many names: node[01-16,20] is node01 to node16 and node20."""

import re
from itertools import product

from penstock.errors import InputError

MAX_NAMES = 65_536
_RANGE = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?\Z")
_PART = re.compile(r"[^\[\],\s]+|\[[^\[\]]*\]")
_HINT = "Write names with commas, and numbers in brackets: node[01-16,20],login1."


def expand(text: str, *, where: str) -> list[str]:
    """All names of a host list, in order.

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
    """The items between commas that are not in brackets."""
    items, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1) or character.isspace():
            raise InputError(f"{_short(text)} is no list of hosts", where=where, hint=_HINT)
        if character == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    if depth or not all(items):
        raise InputError(f"{_short(text)} is no list of hosts", where=where, hint=_HINT)
    return items


def _choices(part: str, where: str) -> list[str]:
    found: list[str] = []
    for item in part[1:-1].split(","):
        match = _RANGE.match(item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first or last - first >= MAX_NAMES:
            raise InputError(f"{_short(item)} is no range of numbers", where=where, hint=_HINT)
        # Zeros in front are part of the names.
        found += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
        if len(found) > MAX_NAMES:
            raise InputError(f"{_short(part)} has more than {MAX_NAMES:,} names", where=where, hint=_HINT)
    return found


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
