"""Running the planner auto for somebody who watches: progress, a budget of time, and Ctrl-C for the best so far."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from penstock.cli.screen import Screen
from penstock.errors import InputError
from penstock.plan.types import Plan
from penstock.planners.auto import Freedoms, Progress, auto
from penstock.planners.problem import Problem
from penstock.quantities import parse_seconds, show_bytes, show_seconds

WORK_WITH_BUDGET = 10_000_000
"""With a budget of time, that ends the search."""


def search(
    screen: Screen, problem: Problem, *, freedoms: Freedoms, budget: str | None, work: int | None, seed: int
) -> Plan:
    """The best plan found until the work is done, the budget is used up, or somebody presses Ctrl-C."""
    until = time.monotonic() + parse_seconds(budget, where="--budget") if budget else None
    if work is not None and work < 0:
        raise InputError(f"--work must not be negative, but is {work}")
    amount = work if work is not None else WORK_WITH_BUDGET if until is not None else None
    with _interruptible() as was_interrupted, screen.progress("looking at plans") as show:

        def report(progress: Progress) -> bool:
            over, seconds = progress.best
            short = f", {show_bytes(over)} short of memory" if over else ""
            show(f"{progress.num_plans:,} plans, best {show_seconds(seconds)}{short} (Ctrl-C takes the best so far)")
            return not was_interrupted() and (until is None or time.monotonic() < until)

        if amount is None:
            return auto(problem, freedoms=freedoms, seed=seed, report=report)
        return auto(problem, freedoms=freedoms, work=amount, seed=seed, report=report)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C is only noted; a second one stops everything as usual."""
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(noted)
    finally:
        signal.signal(signal.SIGINT, before)
