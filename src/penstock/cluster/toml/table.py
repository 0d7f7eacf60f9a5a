"""Typed access to the values of a TOML table; errors name the key path."""

import math
import re
import sys
from collections.abc import Mapping
from typing import Literal

import msgspec

from penstock.cluster.declaration import UNLIMITED, Traits, WireDeclaration
from penstock.cluster.types import MAX_MEMORY_BYTES, Wire
from penstock.errors import InputError
from penstock.names import near_names
from penstock.units import parse_bytes, parse_rate, parse_seconds

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
MAX_NUMBER = 1e18
"""Largest number of a list of sizes or seconds."""
MAX_ENTRY = 1e6
"""Largest entry of a matrix of fractions."""
_WIRE_HINT = "Write a bandwidth and, if known, a latency: '25 GB/s, 5 us'."


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A TOML table, its key path and its file."""

    values: Mapping[str, object]
    path: str
    where: str

    def key(self, name: str) -> str:
        """Return the key path of an entry, such as link[2].from."""
        name = _short(name) if _BARE_KEY.match(name) else repr(_short(name))
        return f"{self.path}.{name}" if self.path else name

    def at(self, name: str) -> str:
        """Return the location of an entry, for errors."""
        return f"{self.where}, at {self.key(name)}" if self.where else self.key(name)

    def refuse_unknown(self, known: tuple[str, ...], elsewhere: Mapping[str, str]) -> None:
        """Raise an error for the first unknown key. `elsewhere` maps keys to the tables that they belong to."""
        for name in self.values:
            if name in known:
                continue
            near = near_names(_short(name), known)
            if name in elsewhere:
                hint = f"{name!r} belongs {elsewhere[name]}."
            elif near:
                hint = f"Did you mean {near[0]!r}?"
            else:
                hint = f"Known keys here: {', '.join(known)}."
            raise InputError(f"unknown key {_short(name)!r}", where=self.at(name), hint=hint)

    def text(self, name: str) -> str | None:
        """Return a string, or None if the key is missing."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(name, "a string in quotes")

    def label(self, name: str) -> str | None:
        """Return a string that is not empty, or None if the key is missing."""
        value = self.text(name)
        if value is not None and not value:
            raise InputError(f"{name} is empty", where=self.at(name))
        return value

    def needed_label(self, name: str, hint: str) -> str:
        """Return a string that is not empty. The key is required."""
        value = self.label(name)
        if value is None:
            raise InputError(f"{name} is missing", where=self.at(name), hint=hint)
        return value

    def count(self, name: str, *, least: int) -> int | None:
        """Return an integer, or None if the key is missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, "an integer")
        if value < least:
            raise InputError(f"{name} must be at least {least}, not {_show(value)}", where=self.at(name))
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a list of strings; empty if the key is missing."""
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of strings in quotes")
        return tuple(value)

    def table(self, name: str) -> "Table | None":
        """Return the table `[name]`, or None if it is missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "a table", f"Start it with a line [{name}].")
        return Table(values=value, path=self.key(name), where=self.where)

    def matrix(self, name: str) -> tuple[tuple[float, ...], ...]:
        """Return a square matrix of nonnegative numbers; empty if the key is missing."""
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(row, list) and len(row) == len(value) for row in value):
            raise self.wrong(name, "a square matrix: a list of lists of numbers")
        for number in (number for row in value for number in row):
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= MAX_ENTRY:
                what = f"entries of {name} must be numbers from 0 to {MAX_ENTRY:g}, not {_show(number)}"
                raise InputError(what, where=self.at(name))
        return tuple(tuple(float(number) for number in row) for row in value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of positive numbers. The key is required."""
        value = self.values.get(name)
        if value is None:
            raise InputError(f"{name} is missing", where=self.at(name), hint=f"Write {name} = [1e6, 2e6].")
        if not isinstance(value, list):
            raise self.wrong(name, "a list of numbers")
        for number in value:
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= MAX_NUMBER:
                what = f"entries of {name} must be positive numbers up to {MAX_NUMBER:g}, not {_show(number)}"
                raise InputError(what, where=self.at(name))
        return tuple(float(number) for number in value)

    def tables(self, name: str) -> list["Table"]:
        """Return the tables `[[name]]`."""
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            hint = f"Start each with a line [[{name}]], in double brackets."
            raise InputError(f"{name} must be a list of tables", where=self.at(name), hint=hint)
        return [
            Table(values=item, path=f"{self.key(name)}[{index}]", where=self.where) for index, item in enumerate(value)
        ]

    def wire(self, name: str) -> WireDeclaration | None:
        """Return a wire such as "25 GB/s, 5 us", or None if the key is missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(name, "a string in quotes", _WIRE_HINT)
        return parse_wire(value, key=self.key(name), where=self.at(name))

    def interface(self, name: str) -> float | bool | None:
        """Return a bandwidth, True, False, or None if the key is missing."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return value
        if not isinstance(value, str):
            raise self.wrong(name, "true, false or a bandwidth in quotes", "Write '12.5 GB/s', or true for `between`.")
        return _rate(value, self.at(name))

    def traits(self) -> Traits:
        """Return the device kind, memory and speed of this table."""
        return Traits(kind=self.label("kind"), memory=self._memory(), speed=self._speed())

    def _memory(self) -> int | Literal["unlimited"] | None:
        value = self.values.get("memory")
        if value is None:
            return None
        if value == UNLIMITED:
            return "unlimited"
        if not isinstance(value, str):
            hint = "Write a size such as '40 GB' or '24 GiB', or 'unlimited'."
            raise self.wrong("memory", "a string in quotes", hint)
        memory_bytes = parse_bytes(value, where=self.at("memory"))
        if memory_bytes > MAX_MEMORY_BYTES:
            what = f"memory must be at most 2**60 bytes, not {_short(value)!r}"
            raise InputError(what, where=self.at("memory"), hint="Write 'unlimited' for no limit.")
        return memory_bytes

    def _speed(self) -> float | None:
        value = self.values.get("speed")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong("speed", "a number", "1.0 is the full speed of its kind, 0.5 takes twice as long.")
        # An integer may be too large for a float, so it is compared before it is converted.
        if not 0 < value <= sys.float_info.max:
            raise InputError(f"speed must be positive and finite, not {_show(value)}", where=self.at("speed"))
        return float(value)

    def wrong(self, name: str, expected: str, hint: str = "") -> InputError:
        """Build the error for a value of the wrong type."""
        return InputError(f"{name} must be {expected}, not {_show(self.values[name])}", where=self.at(name), hint=hint)


def parse_wire(text: str, *, key: str, where: str) -> WireDeclaration:
    """Parse a bandwidth and, after a comma, a latency.

    >>> parse_wire("25 GB/s, 5 us", key="inside", where="").wire
    Wire(bandwidth=25000000000.0, latency_s=5e-06)
    """
    bandwidth, comma, latency = text.partition(",")
    if "," in latency:
        raise InputError(f"{_short(text)!r} has more than two values", where=where, hint=_WIRE_HINT)
    wire = Wire(bandwidth=_rate(bandwidth, where), latency_s=parse_seconds(latency, where=where) if comma else 0.0)
    return WireDeclaration(key=key, wire=wire, has_latency=bool(comma))


def _rate(text: str, where: str) -> float:
    return math.inf if text.strip() == UNLIMITED else parse_rate(text, where=where)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    if isinstance(value, int | float | str):
        return repr(_short(value)) if isinstance(value, str) else repr(value)
    return {"list": "a list", "dict": "a table"}.get(type(value).__name__, "a date or time")
