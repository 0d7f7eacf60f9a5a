"""What the tests of the documentation read from Markdown files: code blocks, command lines, links, headings."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import DOCS, REPOSITORY

PAGES = sorted(
    [
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *DOCS.rglob("*.md"),
        *(REPOSITORY / "examples").rglob("*.md"),
    ]
)
PROGRAMS = ("penstock", "torchrun", "python", "pip", "make", "git", "nvidia-smi", "pytest", "sh", "node")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Command(NamedTuple):
    """A command line of a page, with its continuation lines."""

    path: Path
    lines: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        joined = " ".join(line.removesuffix("\\").strip() for line in self.lines)
        return shlex.split(joined.removeprefix("$ "), comments=True)


def name_of(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [body for found, body in FENCE.findall(text) if found == language]


def code_lines(text: str) -> list[str]:
    """The lines of indented blocks, and of fenced ones without a language or with that of a shell."""
    fenced = "\n".join(body for language, body in FENCE.findall(text) if language in ("", "sh", "text", "console"))
    lines = FENCE.sub("", text).splitlines()
    indented = [line[4:] for line in lines if line.startswith("    ")]
    return [*indented, *fenced.splitlines()]


def commands(path: Path) -> Iterator[Command]:
    """Every command line in a code block of a page."""
    pending: list[str] = []
    for line in code_lines(path.read_text(encoding="utf-8")):
        starts = line.removeprefix("$ ").split(" ")[0] in PROGRAMS
        if pending or starts:
            pending.append(line)
            if not line.endswith("\\"):
                yield Command(path, tuple(pending))
                pending = []


def prose(text: str) -> str:
    """A page without its code blocks."""
    return re.sub(r"^    .*$", "", FENCE.sub("", text), flags=re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as Markdown viewers make them."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}
