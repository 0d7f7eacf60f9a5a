"""Prices of single losses for `penstock plan --losses`, and the plan of `--survive 1`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.adaptation import RESTART_S, FailureModel, LossPrice, expected_step_s, price_losses
from penstock.cli.console import Console
from penstock.cli.options import LossOptions, Method
from penstock.cli.workflows.planning import PlanResult
from penstock.cli.workflows.search import make_plan
from penstock.errors import InputError
from penstock.profile import Profile
from penstock.simulate import Evaluation, evaluate_costs
from penstock.units import show_bytes, show_count, show_percent, show_seconds

MORE_SEEDS = (1, 2)
"""Seeds of the further searches of --survive."""
NAMES = 3


@dataclass(frozen=True)
class PricedLosses:
    """The prices of the single losses of a plan, and the expected time of a step if it was asked for."""

    prices: tuple[LossPrice, ...]
    iteration_s: float
    expected_s: float | None = None


def survivable_plan(
    console: Console, planning: PlanResult, method: Method, options: LossOptions
) -> tuple[PlanResult, PricedLosses]:
    """Of the plans of several searches, choose that with the least expected time of a step under single losses.

    Raises:
        InputError: After some loss no plan for the rest fits into memory, or there is only one device.
    """
    profile = planning.problem.profile
    failures = FailureModel(options.failures_per_day, options.repair_s)
    solutions = [planning.solution]
    if method.planner == "auto":
        for number, seed in enumerate(MORE_SEEDS, 2):
            searching = replace(method.searching, seed=(method.searching.seed or 0) + seed)
            label = f"search {number} of {1 + len(MORE_SEEDS)}"
            solutions.append(make_plan(console, replace(method, searching=searching), planning.problem, what=label))
    best: tuple[float, int, PricedLosses] | None = None
    known: tuple[LossPrice, ...] = ()
    for index, solution in enumerate(solutions):
        evaluation = evaluate_costs(solution.costs, program=solution.program, within_memory=False)
        priced = price_all(console, evaluation, profile, options, known=known)
        known = priced.prices
        expected_s = expected_step_s(priced.iteration_s, priced.prices, failures)
        if best is None or expected_s < best[0]:
            best = expected_s, index, replace(priced, expected_s=expected_s)
    assert best is not None, "there is at least one solution"
    _, index, priced = best
    if not priced.prices:
        raise InputError("--survive 1 requires at least two devices", where="--survive")
    fatal = next((item for item in priced.prices if item.evaluation is None), None)
    if fatal is not None:
        raise InputError(
            f"training would not survive the loss of {fatal.loss.name}: {fatal.problem}",
            where="--survive",
            hint="Use more devices, smaller micro-batches, or recomputation; --losses shows all losses.",
        )
    return replace(planning, solution=solutions[index]), priced


def price_all(
    console: Console,
    evaluation: Evaluation,
    profile: Profile,
    options: LossOptions,
    *,
    known: tuple[LossPrice, ...] = (),
) -> PricedLosses:
    """Price the single losses of a plan, with progress."""
    with console.progress("pricing losses") as show:
        prices = price_losses(
            evaluation,
            profile,
            copy_every=options.copy_every,
            known=known,
            on_loss=lambda name: show(f"planning without {name}"),
        )
    return PricedLosses(prices, evaluation.timeline.iteration_s)


def losses_data(priced: PricedLosses | None) -> dict[str, Any]:
    """The prices, as data."""
    if priced is None:
        return {}
    rows = [
        {
            "loss": item.loss.name,
            "is_host": item.loss.is_host,
            "alike": item.alike,
            "iteration_s": item.iteration_s,
            "recover_s": item.recover_s,
            "steps_lost": item.steps_lost,
            "moved_bytes": item.moved_bytes,
            "needs_copy": item.needs_copy,
            "problem": item.problem,
        }
        for item in priced.prices
    ]
    return {"losses": rows, "expected_step_s": priced.expected_s}


def show_losses(console: Console, priced: PricedLosses | None, options: LossOptions) -> None:
    """Show the prices as a table."""
    if priced is None or not console.shows_text:
        return
    if not priced.prices:
        console.show("", "losses: training cannot survive the loss of its only device")
        return
    rows = []
    for item in priced.prices:
        names = _names(item.alike)
        label = f"host {names}" if item.loss.is_host else names
        if item.iteration_s is None:
            rows.append((label, "none", "", "", item.problem, ""))
            continue
        slower = show_percent(item.iteration_s / priced.iteration_s - 1)
        lost = str(item.steps_lost) if not item.needs_copy else f"{item.steps_lost} (from a copy)"
        moved = show_bytes(item.moved_bytes)
        rows.append((label, show_seconds(item.iteration_s), slower, show_seconds(item.recover_s), lost, moved))
    header = ("loss of", "iteration after", "slower", "to recover", "steps lost", "state moved")
    console.table("what a loss would cost", header, rows, left=1)
    console.show(
        "The plan after each loss is proved, within memory. Recovery assumes "
        f"{show_seconds(RESTART_S)} to notice the loss and to start again, and copies of the state on another host "
        f"every {show_count(options.copy_every, 'step')}."
    )
    if priced.expected_s is not None:
        console.show(
            f"expected time of a step {show_seconds(priced.expected_s)} "
            f"({show_percent(priced.expected_s / priced.iteration_s - 1)} more than without losses), with "
            f"{options.failures_per_day:g} losses per day of each device and host, {options.repair_s / 3600:g} h until "
            "the repair"
        )


def _names(names: Sequence[str]) -> str:
    """Some names of equal losses.

    >>> _names(["d0", "d1", "d2", "d3"])
    'd0, d1, d2 and 1 more'
    """
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more
