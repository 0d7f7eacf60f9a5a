"""The result of a benchmark for one target."""

from typing import NamedTuple


class Result(NamedTuple):
    """One target with its measurement."""

    what: str
    target: str
    measured: str
    reached: bool
    is_over_all: bool = False
    """Whether the target is a maximum or a median over all cases, which a quick run cannot decide."""

    def line(self, *, quick: bool) -> str:
        """The target in one line."""
        verdict = "ok" if self.reached else "undecided (too few cases)" if quick and self.is_over_all else "short"
        return f"{self.what:72} target {self.target:13} measured {self.measured:34} {verdict}"
