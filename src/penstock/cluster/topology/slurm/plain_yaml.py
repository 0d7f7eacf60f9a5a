"""Parser of the subset of YAML that Slurm's topology.yaml uses: block maps, block lists and one-line strings.

A full YAML parser would be one more dependency for a single file format, with features that a topology never needs
(references that expand without bound, values of any type). Unsupported syntax raises an error with its line.
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
    "|": "multi-line strings",
    ">": "multi-line strings",
    "{": "flow maps",
    "%": "directives",
    "@": "strings that start with @",
    "`": "strings that start with `",
}


@dataclass(frozen=True)
class Node:
    """A value and the line where it starts."""

    value: "str | list[Node] | dict[str, Node]"
    line: int


@dataclass(frozen=True)
class _Line:
    number: int
    indent: int
    text: str


def parse_yaml(text: str, *, where: str) -> Node:
    r"""Parse a document.

    >>> document = parse_yaml("- name: a\n  nodes: n[1-2]\n- name: b\n", where="")
    >>> [item.value["name"].value for item in document.value]
    ['a', 'b']
    """
    lines = [line for number, raw in enumerate(text.splitlines(), 1) if (line := _line(raw, number, where))]
    if not lines:
        return Node("", 1)
    reader = _Reader(lines, where)
    document = reader.block(lines[0].indent, 0)
    if reader.position < len(lines):
        reader.refuse(lines[reader.position], "inconsistent indentation")
    return document


def _line(raw: str, number: int, where: str) -> _Line | None:
    text = raw.rstrip()
    stripped = text.lstrip(" ")
    if stripped in ("", "---", "...") or stripped.startswith("#"):
        return None
    if stripped.startswith("\t"):
        raise InputError("the indentation has a tab", where=f"{where}:{number}", hint="Indent with spaces.")
    return _Line(number, len(text) - len(stripped), stripped)


class _Reader:
    def __init__(self, lines: list[_Line], where: str) -> None:
        self._lines = lines
        self._where = where
        self.position = 0

    def block(self, indent: int, depth: int) -> Node:
        """Parse the list, map or string that starts here."""
        line = self._lines[self.position]
        if depth > MAX_DEPTH:
            self.refuse(line, "nested too deeply")
        if line.text == "-" or line.text.startswith("- "):
            return self._list(indent, depth)
        if _KEY.match(line.text):
            return self._map(indent, depth)
        self.position += 1
        return self._scalar(line.text, line)

    def _list(self, indent: int, depth: int) -> Node:
        first = self._lines[self.position]
        items: list[Node] = []
        while (line := self._at(indent)) and (line.text == "-" or line.text.startswith("- ")):
            rest = line.text[1:].lstrip(" ")
            if rest and not rest.startswith("#"):
                # The rest of the line is a nested block, as if it were on a separate line.
                inner = indent + len(line.text) - len(rest)
                self._lines[self.position] = _Line(line.number, inner, rest)
                items.append(self.block(inner, depth + 1))
            else:
                self.position += 1
                items.append(self._below(indent, depth, line))
        return Node(items, first.number)

    def _map(self, indent: int, depth: int) -> Node:
        first = self._lines[self.position]
        entries: dict[str, Node] = {}
        while (line := self._at(indent)) and (match := _KEY.match(line.text)):
            key, rest = match[1], _without_comment(match[2] or "").strip()
            if key in entries:
                self.refuse(line, f"duplicate key {key!r}")
            self.position += 1
            entries[key] = self._scalar(rest, line) if rest else self._below(indent, depth, line)
        return Node(entries, first.number)

    def _below(self, indent: int, depth: int, line: _Line) -> Node:
        """Parse the value on the lines after a key or dash: a deeper block, or a list at the indentation of a key."""
        if self.position < len(self._lines):
            following = self._lines[self.position]
            is_list = following.indent == indent and following.text.startswith("-") and not line.text.startswith("-")
            if following.indent > indent or is_list:
                return self.block(following.indent, depth + 1)
        return Node("", line.number)

    def _at(self, indent: int) -> _Line | None:
        if self.position >= len(self._lines):
            return None
        line = self._lines[self.position]
        if line.indent > indent:
            self.refuse(line, "inconsistent indentation")
        return line if line.indent == indent else None

    def _scalar(self, text: str, line: _Line) -> Node:
        quote = text[0]
        if quote in "'\"":
            match = re.match(r"'((?:[^']|'')*)'\s*(?:#.*)?\Z" if quote == "'" else r'"([^"\\]*)"\s*(?:#.*)?\Z', text)
            if match is None:
                self.refuse(line, "a quoted string is not closed, or has escapes")
            return Node(match[1].replace("''", "'"), line.number)
        plain = _without_comment(text).strip()
        if plain.startswith("[") and plain.endswith("]"):
            items = [item.strip() for item in plain[1:-1].split(",")]
            if any(item.startswith("[") for item in items):
                self.refuse(line, "lists in flow lists are not supported")
            return Node([self._scalar(item, line) for item in items if item], line.number)
        if quote in _REFUSED or plain.startswith("["):
            self.refuse(line, f"{_REFUSED.get(quote, 'multi-line flow lists')} are not supported")
        if ": " in plain or plain.endswith(":"):
            self.refuse(line, "expected a string, not a map")
        return Node(plain, line.number)

    def refuse(self, line: _Line, what: str) -> NoReturn:
        """Raise the error for a line."""
        hint = "Only the subset of YAML that topology.yaml needs is supported."
        raise InputError(f"{what}: {line.text[:40]!r}", where=f"{self._where}:{line.number}", hint=hint)


def _without_comment(text: str) -> str:
    return text if text[:1] in "'\"" else _COMMENT.sub("", text)
