"""Running the planner auto for somebody who watches: progress, a budget of time, and Ctrl-C for the best so far."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import FrameType

from penstock.cli.console import Screen
from penstock.cli.options import AutoOptions, Method
from penstock.errors import InputError
from penstock.plan import Plan
from penstock.planners import Problem, find_planner
from penstock.planners.auto import Progress, auto
from penstock.planners.bounds import lower_bound
from penstock.units import parse_seconds, show_bytes, show_percent, show_seconds

WORK_WITH_BUDGET = 10_000_000
"""With a budget of time, that ends the search."""


def search(screen: Screen, problem: Problem, asked: AutoOptions, *, what: str = "") -> Plan:
    """The best plan found until the work is done, the budget is used up, or somebody presses Ctrl-C.

    `what` stands before the progress, where there are several searches: then Ctrl-C stops them all, since what one of
    them has found so far cannot be compared with what the others have.
    """
    until = time.monotonic() + parse_seconds(asked.budget, where="--budget") if asked.budget else None
    if asked.work is not None and asked.work < 0:
        raise InputError(f"--work must not be negative, but is {asked.work}")
    amount = asked.work if asked.work is not None else WORK_WITH_BUDGET if until is not None else None
    ahead = f"{what}: " if what else ""
    ctrl_c = "" if what else " (Ctrl-C takes the best so far)"
    with (
        nullcontext(_never) if what else _interruptible() as was_interrupted,
        screen.progress(f"{ahead}looking at plans") as show,
    ):
        bound_s = lower_bound(
            problem.profile,
            problem.cluster,
            problem.num_microbatches,
            problem.micro_batch_size,
            replication=asked.search_space.replication,
            moved=asked.search_space.two_cuts,
        ).seconds

        def report(progress: Progress) -> bool:
            show(f"{ahead}{progress_line(progress, bound_s)}{ctrl_c}")
            return not was_interrupted() and (until is None or time.monotonic() < until)

        seed = asked.seed or 0
        if amount is None:
            return auto(problem, search_space=asked.search_space, seed=seed, report=report)
        return auto(problem, search_space=asked.search_space, work=amount, seed=seed, report=report)


def make_plan(screen: Screen, method: Method, problem: Problem, *, what: str = "") -> Plan:
    """The plan, with progress for those who watch; `what` says which of several it is."""
    if method.planner == "auto":
        return search(screen, problem, replace(method.searching, search_space=method.search_space), what=what)
    method.searching.refuse(method.planner)
    with screen.working(what or "planning"):
        return find_planner(method.planner).plan(problem)


def progress_line(progress: Progress, bound_s: float) -> str:
    """How far a search is: plans looked at, the best of them, and what no plan can beat.

    >>> from penstock.schedules.search.scoring import Score
    >>> progress_line(Progress(1204, 5000, Score(0.0, 2.41)), 2.31)
    '1,204 plans, best 2.41 s, bound 2.31 s, gap 4.3 %'
    """
    over, seconds = progress.best
    short = f", {show_bytes(over)} short of memory" if over else ""
    gap = f", gap {show_percent(seconds / bound_s - 1)}" if bound_s > 0 else ""
    return f"{progress.num_plans:,} plans, best {show_seconds(seconds)}{short}, bound {show_seconds(bound_s)}{gap}"


def _never() -> bool:
    return False


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
