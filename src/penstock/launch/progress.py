"""What a launch shows while it runs; the command line implements it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class ProgressDisplay(Protocol):
    """Receives progress, warnings and results of a run."""

    @property
    def verbose(self) -> bool:
        """Whether to show logs of the ranks as well."""

    @property
    def is_terminal(self) -> bool:
        """Whether a person sees the output as it is written."""

    def silenced(self) -> "ProgressDisplay":
        """The same display with nothing but errors."""

    def show(self, *items: str) -> None:
        """Lines of the result."""

    def notice(self, text: str) -> None:
        """A line beside the result."""

    def warn(self, text: str) -> None:
        """A warning."""

    def working(self, text: str) -> AbstractContextManager[None]:
        """Show that work is under way."""

    def progress(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Show a line that can be replaced while work is under way."""
