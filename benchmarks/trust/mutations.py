"""Random changes of input files and options: bytes, values, sizes, nesting and hostile names."""

import json
import random
from collections.abc import Iterator
from typing import Any

HOSTILE_TEXTS = (
    "\x1b[2J\x1b[31mred", "a\r\nerror: forged", "\u202etxt.exe", "\x9b31m", "\x07", "\x00", "\ud800", "\u2066x\u2069",
    "<script>alert(1)</script>", "[bold]", "x" * 100_000, "../" * 50, "%s%n", "é" * 300, "",
)  # fmt: skip
NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**64, 10**400, 1e308, -0.0, 1e-320, True, None)
STRETCHED = ("\n", " \n", " ", "\t", "a", "=", "[", "- ", "<!--", "1", "{", "'", "#", ",", ".")


def mutate(original: bytes, rng: random.Random) -> bytes:
    """Return a variant of a file with one to three changes."""
    data = original
    for _ in range(rng.randint(1, 3)):
        change = _change_value if data[:1] in (b"{", b"[") and rng.random() < 0.6 else _change_bytes
        data = change(data, rng)
    return data


def odd_option(rng: random.Random) -> str:
    """Return a text that may stand where an option expects a number, a name or a cluster."""
    texts = [text for text in HOSTILE_TEXTS if "\0" not in text and "\ud800" not in text]
    return str(rng.choice((*texts, *NUMBERS, "1..9", "2 x 3", "9" * 50, "1e9", "nan", "inf", "4 x T4 @ ", "\udcff")))


def _change_value(data: bytes, rng: random.Random) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _change_bytes(data, rng)
    places = list(_places(value))
    if not places:
        return data
    holder, key = rng.choice(places)
    how = rng.random()
    if how < 0.4:
        holder[key] = rng.choice((*HOSTILE_TEXTS, *NUMBERS, [], {}, [[]]))
    elif how < 0.6 and isinstance(holder[key], str):
        holder[key] += rng.choice(HOSTILE_TEXTS)
    elif how < 0.8:
        other, name = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[name]))
    elif isinstance(holder, dict) and how < 0.9:
        holder[rng.choice(HOSTILE_TEXTS)] = holder.pop(key)
    else:
        del holder[key]
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _change_bytes(data: bytes, rng: random.Random) -> bytes:
    place = rng.randint(0, len(data))
    how = rng.random()
    if how < 0.2:
        return data[:place] + data[place + rng.randint(1, 30) :]
    if how < 0.4:
        return data[:place] + rng.randbytes(rng.randint(1, 8)) + data[place:]
    if how < 0.6:
        return data[:place] + rng.choice(HOSTILE_TEXTS).encode("utf-8", "surrogatepass") + data[place:]
    if how < 0.75:
        return data[:place] + rng.choice(STRETCHED).encode() * rng.choice((100, 5_000, 50_000)) + data[place:]
    if how < 0.85:
        return data[: len(data) // 2] + data[place:]
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
