"""The part of YAML that Slurm's topology.yaml is written in: maps, lists and texts by indentation, on one line each.

A reader of all YAML would be another package to install for one file format, and can do much that a topology never
needs (references that unfold without end, values of any type). What is not known here is refused by name and line.
"""

import re
from dataclasses import dataclass
from typing import NoReturn

from penstock.errors import InputError

MAX_DEPTH = 32
_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:(?:\s+(.*))?\Z")
_COMMENT = re.compile(r"(?:^|\s)#.*\Z")
_REFUSED = {
    "&": "anchors",
    "*": "references",
    "!": "tags",
    "|": "texts of many lines",
    ">": "texts of many lines",
    "{": "maps in braces",
    "%": "directives",
    "@": "texts that begin with @",
    "`": "texts that begin with `",
}


@dataclass(frozen=True)
class Node:
    """A value and the line where it begins."""

    value: "str | list[Node] | dict[str, Node]"
    line: int


@dataclass(frozen=True)
class _Line:
    number: int
    indent: int
    text: str


def parse_yaml(text: str, *, where: str) -> Node:
    r"""The value of a text.

    >>> found = parse_yaml("- name: a\n  nodes: n[1-2]\n- name: b\n", where="")
    >>> [item.value["name"].value for item in found.value]
    ['a', 'b']
    """
    lines = [line for number, raw in enumerate(text.splitlines(), 1) if (line := _line(raw, number, where))]
    if not lines:
        return Node("", 1)
    reader = _Reader(lines, where)
    found = reader.block(lines[0].indent, 0)
    if reader.place < len(lines):
        reader.refuse(lines[reader.place], "the indentation fits nothing above")
    return found


def _line(raw: str, number: int, where: str) -> _Line | None:
    text = raw.rstrip()
    stripped = text.lstrip(" ")
    if stripped in ("", "---", "...") or stripped.startswith("#"):
        return None
    if stripped.startswith("\t"):
        raise InputError("a tab stands where spaces should", where=f"{where}:{number}", hint="Indent by spaces.")
    return _Line(number, len(text) - len(stripped), stripped)


class _Reader:
    def __init__(self, lines: list[_Line], where: str) -> None:
        self._lines = lines
        self._where = where
        self.place = 0

    def block(self, indent: int, depth: int) -> Node:
        """The list, map or text that begins here."""
        line = self._lines[self.place]
        if depth > MAX_DEPTH:
            self.refuse(line, "nested too deeply")
        if line.text == "-" or line.text.startswith("- "):
            return self._list(indent, depth)
        if _KEY.match(line.text):
            return self._map(indent, depth)
        self.place += 1
        return self._scalar(line.text, line)

    def _list(self, indent: int, depth: int) -> Node:
        first = self._lines[self.place]
        items: list[Node] = []
        while (line := self._at(indent)) and (line.text == "-" or line.text.startswith("- ")):
            rest = line.text[1:].lstrip(" ")
            if rest and not rest.startswith("#"):
                # What follows the dash is a block of its own, as if it stood on a line of its own.
                inner = indent + len(line.text) - len(rest)
                self._lines[self.place] = _Line(line.number, inner, rest)
                items.append(self.block(inner, depth + 1))
            else:
                self.place += 1
                items.append(self._below(indent, depth, line))
        return Node(items, first.number)

    def _map(self, indent: int, depth: int) -> Node:
        first = self._lines[self.place]
        found: dict[str, Node] = {}
        while (line := self._at(indent)) and (match := _KEY.match(line.text)):
            key, rest = match[1], _without_comment(match[2] or "").strip()
            if key in found:
                self.refuse(line, f"the key {key!r} is there twice")
            self.place += 1
            found[key] = self._scalar(rest, line) if rest else self._below(indent, depth, line)
        return Node(found, first.number)

    def _below(self, indent: int, depth: int, line: _Line) -> Node:
        """What belongs to a key or a dash that has nothing behind it: further to the right, or a list below a key."""
        if self.place < len(self._lines):
            following = self._lines[self.place]
            is_list = following.indent == indent and following.text.startswith("-") and not line.text.startswith("-")
            if following.indent > indent or is_list:
                return self.block(following.indent, depth + 1)
        return Node("", line.number)

    def _at(self, indent: int) -> _Line | None:
        if self.place >= len(self._lines):
            return None
        line = self._lines[self.place]
        if line.indent > indent:
            self.refuse(line, "the indentation fits nothing above")
        return line if line.indent == indent else None

    def _scalar(self, text: str, line: _Line) -> Node:
        quote = text[0]
        if quote in "'\"":
            match = re.match(r"'((?:[^']|'')*)'\s*(?:#.*)?\Z" if quote == "'" else r'"([^"\\]*)"\s*(?:#.*)?\Z', text)
            if match is None:
                self.refuse(line, "a text in quotes has no end, or escapes in it")
            return Node(match[1].replace("''", "'"), line.number)
        plain = _without_comment(text).strip()
        if plain.startswith("[") and plain.endswith("]"):
            items = [item.strip() for item in plain[1:-1].split(",")]
            return Node([self._scalar(item, line) for item in items if item], line.number)
        if quote in _REFUSED or plain.startswith("["):
            self.refuse(line, f"{_REFUSED.get(quote, 'lists over several lines')} are not read here")
        if ": " in plain or plain.endswith(":"):
            self.refuse(line, "a map stands where a text should")
        return Node(plain, line.number)

    def refuse(self, line: _Line, what: str) -> NoReturn:
        """The error for a line."""
        hint = "Only the plain part of YAML that topology.yaml needs is read."
        raise InputError(f"{what}: {line.text[:40]!r}", where=f"{self._where}:{line.number}", hint=hint)


def _without_comment(text: str) -> str:
    return text if text[:1] in "'\"" else _COMMENT.sub("", text)
