"""What a verb shows: tables for people, JSON for machines, as much as was asked for."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console, RenderableType
from rich.table import Table

from penstock.report import shown_name

F = TypeVar("F", bound=Callable[..., Any])

WIDTH_WITHOUT_TERMINAL = 120
MAX_WIDTH = 10_000


@dataclass(frozen=True)
class Screen:
    """Where a verb's output goes. With `as_json`, only the JSON goes to standard output."""

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False

    @cached_property
    def console(self) -> Console:
        """Standard output. Names from files are text: neither markup nor emoji codes are looked for."""
        return _console(stderr=False)

    @cached_property
    def notices(self) -> Console:
        """Standard error, for warnings and progress."""
        return _console(stderr=True)

    @property
    def for_people(self) -> bool:
        """Whether tables and words are wanted."""
        return not (self.quiet or self.as_json)

    @property
    def is_terminal(self) -> bool:
        """Whether a person sees the output as it is written."""
        return self.console.is_terminal

    def silenced(self) -> "Screen":
        """The same screen with nothing but errors."""
        return replace(self, quiet=True)

    def notice(self, text: str) -> None:
        """A line beside the results, as it is."""
        self.notices.print(text)

    def show(self, *items: RenderableType) -> None:
        """Show something to people."""
        if self.for_people:
            for item in items:
                self.console.print(item)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
        """A table; the first `left` columns are text, the others numbers."""
        if not self.for_people:
            return
        found = Table(
            title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False
        )
        for number, column in enumerate(columns):
            # Numbers keep their width; where the screen is narrow, text gives way.
            needed = max(len(column), *(len(row[number]) for row in rows)) if rows else len(column)
            is_text = number < left
            found.add_column(
                column,
                justify="left" if is_text else "right",
                no_wrap=True,
                min_width=min(needed, 6) if is_text else needed,
            )
        for row in rows:
            found.add_row(*map(shown_name, row))
        width = self.console.width
        if not self.console.is_terminal:
            # No screen is too narrow for what goes into a file or to another program.
            self.console.width = MAX_WIDTH
            self.console.width = max(width, self.console.measure(found).maximum)
        self.console.print(found)
        self.console.width = width

    def data(self, value: object) -> None:
        """The result for machines, if they asked."""
        if self.as_json:
            sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")

    def warn(self, text: str) -> None:
        """Something that must not be missed, whatever was asked for."""
        self.notices.print(f"warning: {shown_name(text)}", style="bold yellow")

    def assumptions(self, *texts: str, most: int = 4) -> None:
        """What was assumed; all of it with -v."""
        shown = texts if self.verbose else texts[:most]
        for text in shown:
            self.show(f"  assumed: {shown_name(text)}")
        if len(texts) > len(shown):
            self.show(f"  ({len(texts) - len(shown)} more with -v)")

    def wrote(self, path: str) -> None:
        """A file was written."""
        self.show(f"wrote {shown_name(path)}")

    def next(self, command: str) -> None:
        """The last line: what could be done next."""
        self.show(f"next: {shown_name(command)}")

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show that something takes its time."""
        with self.progress(text):
            yield

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show that something takes its time, and how far it is; gives what changes the text."""
        if self.for_people and self.notices.is_terminal:
            with self.notices.status(text) as status:
                yield status.update
        else:
            yield _ignore


def _ignore(_text: str) -> None:
    """Nobody watches."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the command line decide what a reader that has gone means."""
        raise BrokenPipeError


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "") or WIDTH_WITHOUT_TERMINAL)
    return _Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True, width=width)


def screen_options(verb: F) -> F:
    """The options that every verb has; it gets them as `screen`."""

    @wraps(verb)
    def wrapped(quiet: bool, verbose: bool, as_json: bool, **options: Any) -> Any:
        return verb(screen=Screen(quiet=quiet, verbose=verbose, as_json=as_json), **options)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("-v", "--verbose", is_flag=True, help="Show more."),
        click.option("-q", "--quiet", is_flag=True, help="Show only warnings and errors."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
