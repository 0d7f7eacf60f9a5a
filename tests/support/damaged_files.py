"""Damaged files: JSON with replaced values, and flipped bits."""

import json
from typing import Any

from hypothesis import strategies as st

DEEP = [b"[" * 5000, b'{"a":' * 2000, b"1e999", b"NaN"]

Path = tuple[str | int, ...]

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None, True, False, 0, -1, 1, 2, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, -(10**30),
        0.5, -0.0, 1e-320, 1e308, -1e308,
        "", "d0", "d1", "d9", "0F0", "0F999999999", "9" * 12 + "F0", "0SEND_F0@d1", "0SEND_F0@",
        "0STEP", "\ud800", "\0", "é",
        [], {}, [[]], ["d0", 0], ["d1", 3], ["d0", -1], {"device": "d0", "share": 1e-12},
    ]
)  # fmt: skip
"""Values that are invalid almost everywhere."""


def mutated(original: bytes) -> st.SearchStrategy[bytes]:
    """Variants of a valid file with one to three changes."""
    return st.one_of(_exchanged(json.loads(original)), _exchanged(json.loads(original)), _bytes(original))


@st.composite
def _exchanged(draw: st.DrawFn, value: Any) -> bytes:
    for _ in range(draw(st.integers(1, 3))):
        value = json.loads(_text(value))
        paths = list(_paths(value))
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        how = draw(st.sampled_from(["odd", "odd", "other", "remove", "double", "new key"]))
        if how == "odd":
            holder[path[-1]] = draw(ODD)
        elif how == "other":
            holder[path[-1]] = _at(value, draw(st.sampled_from(paths)))
        elif how == "remove":
            del holder[path[-1]]
        elif how == "double" and isinstance(holder, list):
            holder.append(holder[-1])
        elif isinstance(holder, dict):
            holder[draw(st.sampled_from(["x", "format", "cause", "share"]))] = draw(ODD)
    return _text(value).encode("utf-8", errors="surrogatepass")


def _text(value: Any) -> str:
    return json.dumps(value)


def _paths(value: Any, path: Path = ()) -> list[Path]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += _paths(inner, (*path, key))
    return found


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return json.loads(_text(value))


@st.composite
def _bytes(draw: st.DrawFn, original: bytes) -> bytes:
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["cut", "insert", "change", "repeat"]))
        if how == "cut":
            del data[place : place + draw(st.integers(1, 30))]
        elif how == "insert":
            data[place:place] = draw(
                st.binary(max_size=8) | st.sampled_from([b"[" * 5000, b'{"a":' * 2000, b"1e999", b"NaN"])
            )
        elif how == "change" and place < len(data):
            data[place] = draw(st.integers(0, 255))
        else:
            data[place:place] = data[place : place + 40]
    return bytes(data)
