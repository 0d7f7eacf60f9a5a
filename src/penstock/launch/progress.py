"""The display of a run's progress; the command line implements it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class ProgressDisplay(Protocol):
    """Receives progress, warnings and results of a run."""

    @property
    def verbose(self) -> bool:
        """Whether to show the ranks' standard error as well."""

    @property
    def is_terminal(self) -> bool:
        """Whether the output goes to a terminal."""

    def silenced(self) -> "ProgressDisplay":
        """The same display with warnings and errors only."""

    def show(self, *items: str) -> None:
        """Show lines of the result."""

    def notice(self, text: str) -> None:
        """Show a line that is not part of the result."""

    def warn(self, text: str) -> None:
        """Show a warning."""

    def working(self, text: str) -> AbstractContextManager[None]:
        """Show that work is under way."""

    def progress(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Show a line that can be replaced while work is under way."""
