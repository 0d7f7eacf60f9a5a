"""The output of a command: tables for people, or JSON."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from penstock.printable_text import escape_json, escape_lines, escape_text

F = TypeVar("F", bound=Callable[..., Any])

WIDTH_WITHOUT_TERMINAL = 120
MAX_WIDTH = 10_000


@dataclass(frozen=True)
class Console:
    """Where a command writes. With `as_json`, standard output has the JSON only."""

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False

    @cached_property
    def stdout(self) -> RichConsole:
        """Standard output. Names from files are plain text, without markup or emoji codes."""
        return _rich_console(stderr=False)

    @cached_property
    def stderr(self) -> RichConsole:
        """Standard error, for warnings and progress."""
        return _rich_console(stderr=True)

    @property
    def shows_text(self) -> bool:
        """Whether tables and sentences are shown."""
        return not (self.quiet or self.as_json)

    @property
    def shows_progress(self) -> bool:
        """Whether a progress line is shown."""
        return self.shows_text and self.stderr.is_terminal

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return self.stdout.is_terminal

    def silenced(self) -> "Console":
        """The same console with warnings and errors only."""
        return replace(self, quiet=True)

    def notice(self, text: str) -> None:
        """Write a line to standard error, unchanged."""
        self.stderr.print(text)

    def show(self, *items: RenderableType) -> None:
        """Show text, tables or pictures, unless --quiet or --json is set."""
        if self.shows_text:
            for item in items:
                self.stdout.print(item)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
        """Show a table. The first `left` columns are text, the others numbers."""
        if not self.shows_text:
            return
        table = Table(
            title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False
        )
        for number, column in enumerate(columns):
            # Numbers keep their width; on a narrow terminal, text is cut.
            needed = max(len(column), *(len(row[number]) for row in rows)) if rows else len(column)
            is_text = number < left
            table.add_column(
                column,
                justify="left" if is_text else "right",
                no_wrap=True,
                min_width=min(needed, 6) if is_text else needed,
            )
        for row in rows:
            table.add_row(*map(escape_text, row))
        width = self.stdout.width
        if not self.stdout.is_terminal:
            # A file, or another program, has any width.
            self.stdout.width = MAX_WIDTH
            self.stdout.width = max(width, self.stdout.measure(table).maximum)
        self.stdout.print(table)
        self.stdout.width = width

    def data(self, value: object) -> None:
        """Write the result as JSON, if --json is set."""
        if self.as_json:
            text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
            sys.stdout.buffer.write(escape_json(text).encode() + b"\n")

    def warn(self, text: str) -> None:
        """Write a warning to standard error, always."""
        self.stderr.print(f"warning: {escape_text(text)}", style="bold yellow")

    def assumptions(self, *texts: str, most: int = 4) -> None:
        """Show assumptions; all of them with --verbose."""
        shown = texts if self.verbose else texts[:most]
        for text in shown:
            self.show(f"  assumed: {escape_text(text)}")
        if len(texts) > len(shown):
            self.show(f"  ({len(texts) - len(shown)} more with -v)")

    def wrote(self, path: str) -> None:
        """Show that a file was written."""
        self.show(f"wrote {escape_text(path)}")

    def next(self, command: str) -> None:
        """Show the last line: a command to continue with."""
        self.show(f"next: {escape_text(command)}")

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show that work is under way."""
        with self.progress(text):
            yield

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show that work is under way; yields a function that changes the text."""
        if self.shows_progress:
            with self.stderr.status(text) as status:
                yield status.update
        else:
            yield _ignore


def _ignore(_text: str) -> None:
    """Drop progress that is not shown."""


class _RichConsole(RichConsole):
    """A console whose text cannot control the terminal: every text is escaped where it is rendered."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render; control sequences of rich itself, such as those of a progress line, stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_lines(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raise the error: `main` handles a closed pipe."""
        raise BrokenPipeError


def _rich_console(*, stderr: bool) -> RichConsole:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "") or WIDTH_WITHOUT_TERMINAL)
    return _RichConsole(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True, width=width)


def console_options(verb: F) -> F:
    """Add the options that every command has; the command gets them as `console`."""

    @wraps(verb)
    def wrapped(quiet: bool, verbose: bool, as_json: bool, **options: Any) -> Any:
        return verb(console=Console(quiet=quiet, verbose=verbose, as_json=as_json), **options)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("-v", "--verbose", is_flag=True, help="Show more output."),
        click.option("-q", "--quiet", is_flag=True, help="Show warnings and errors only."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
