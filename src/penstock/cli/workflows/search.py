"""Running a planner with progress; for auto also with a time limit, and Ctrl-C to keep the best plan so far."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import FrameType

from penstock.cli.console import Console
from penstock.cli.options import AutoOptions, Method
from penstock.errors import InputError
from penstock.export import with_equal_orders
from penstock.planners import Problem, SearchSpace, Solution, find_planner, order_plan, plan_within
from penstock.planners.auto import WORK, Progress, search_plans
from penstock.planners.bounds import lower_bound
from penstock.units import parse_seconds, show_bytes, show_percent, show_seconds

WORK_WITH_BUDGET = 10_000_000
"""Work with --budget: the time limit ends the search first."""


def search(console: Console, problem: Problem, options: AutoOptions, *, what: str = "") -> Solution:
    """Search until the work is done, the time is up, or Ctrl-C is pressed, and return the best plan.

    Args:
        console: Shows progress.
        problem: The problem.
        options: The search space, and when to stop.
        what: The label of one of several searches. Ctrl-C then stops the command: the best plan of an incomplete
            search cannot be compared with those of complete ones.
    """
    until = time.monotonic() + parse_seconds(options.budget, where="--budget") if options.budget else None
    if options.work is not None and options.work < 0:
        raise InputError(f"--work ({options.work}) must not be negative")
    amount = options.work if options.work is not None else WORK_WITH_BUDGET if until is not None else None
    label = f"{what}: " if what else ""
    ctrl_c = "" if what else " (Ctrl-C keeps the best so far)"
    with (
        nullcontext(_never) if what else _interruptible() as was_interrupted,
        console.progress(f"{label}searching") as show,
    ):
        bound_s = _bound_s(problem, options.search_space) if console.shows_progress else 0.0

        def report(progress: Progress) -> bool:
            if console.shows_progress:
                show(f"{label}{progress_line(progress, bound_s)}{ctrl_c}")
            return not was_interrupted() and (until is None or time.monotonic() < until)

        work = WORK if amount is None else amount
        solution = search_plans(
            problem,
            search_space=options.search_space,
            work=work,
            seed=options.seed or 0,
            report=report,
            risk=options.risk,
        )
    if was_interrupted():
        console.warn("interrupted: this is the best plan found so far")
    return solution


def _bound_s(problem: Problem, search_space: SearchSpace) -> float:
    """The lower bound for plans within the search space."""
    return lower_bound(
        problem.profile,
        problem.cluster,
        problem.num_microbatches,
        problem.micro_batch_size,
        replication=search_space.replication,
        remote_backward=search_space.two_cuts,
        sharded_optimizer=search_space.sharded_optimizer,
    ).seconds


def make_plan(console: Console, method: Method, problem: Problem, *, what: str = "") -> Solution:
    """Make a plan with its costs and program, for an engine with equal orders of replicas.

    `what` is the label of its progress.
    """
    solution = _make_plan(console, method, problem, what)
    return solution if method.engine is None else with_equal_orders(solution)


def _make_plan(console: Console, method: Method, problem: Problem, what: str) -> Solution:
    if method.planner == "auto":
        return search(console, problem, replace(method.searching, search_space=method.search_space), what=what)
    method.searching.refuse(method.planner)
    with console.working(what or "planning"):
        return order_plan(plan_within(find_planner(method.planner), problem, method.search_space), problem)


def progress_line(progress: Progress, bound_s: float) -> str:
    """The progress of a search: plans evaluated, the best of them, and the lower bound.

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
    """Record the first Ctrl-C; a second one interrupts as usual."""
    interrupts: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(interrupts)
    finally:
        signal.signal(signal.SIGINT, before)
