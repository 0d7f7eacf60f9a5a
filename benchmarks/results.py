"""What a benchmark says about a target, and how it is printed."""

from typing import NamedTuple


class Result(NamedTuple):
    """One target: what was measured, what it had to be, and whether it was reached."""

    what: str
    target: str
    measured: str
    reached: bool
    is_over_all: bool = False
    """A maximum or a median over all cases: a run with a few of them does not decide it."""

    def line(self, *, quick: bool) -> str:
        """The target in one line."""
        verdict = "ok" if self.reached else "too few cases to say" if quick and self.is_over_all else "short"
        return f"{self.what:72} target {self.target:13} measured {self.measured:34} {verdict}"
