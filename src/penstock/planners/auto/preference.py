"""The choice between simple and intricate plans, under what is known of the errors of their predicted times.

The best plan of the whole search space is compared with the best ones without remote backwards, and with one stage per
device besides. All are judged by their expected time over perturbed simulations, or by a quantile of it. The errors of
a device, of a link, and of a stage with the same layers are the same for all of them, so that only the others make
their difference uncertain. The simplest plan is chosen whose judged time is above the best one by at most the standard
deviation of the difference: fewer remote backwards, then fewer stages per device, then less memory.

This applies where the profile states a measured spread, or where a quantile is requested. Otherwise the fastest plan by
simulated time is chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.plan import Complexity, complexity_of
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from penstock.planners.solution import Declined, Solution
from penstock.simulate import Prediction, evaluate_costs, predict
from penstock.units import show_count

NUM_SAMPLES = 60
MOST_ACTIONS = 2_000_000
"""Simulated actions over all samples of a plan, but at least 20 samples."""
FEWEST_SAMPLES = 20

Search = Callable[[SearchSpace], Solution]


def is_judged(problem: Problem, risk: float | None) -> bool:
    """Whether plans are judged by perturbed simulations."""
    return risk is not None or problem.profile.known_spread.is_measured


def search_simple_first(
    problem: Problem, space: SearchSpace, search: Search, *, seed: int, risk: float | None
) -> Solution:
    """Search the whole space and the simpler ones within it, and choose.

    Args:
        problem: The problem.
        space: The whole search space.
        search: Finds the best plan within a space.
        seed: Seed of the errors.
        risk: The quantile by which plans are judged; their expected time if None.
    """
    found = [search(space)]
    for simpler in _simpler_spaces(space, complexity_of(found[0].plan)):
        solution = search(simpler)
        if solution.plan.stages not in {other.plan.stages for other in found}:
            found.append(solution)
    if len(found) == 1:
        return found[0]
    return choose(found, problem, seed=seed, risk=risk)


def _simpler_spaces(space: SearchSpace, complexity: Complexity) -> list[SearchSpace]:
    """The spaces within a space that do not hold its best plan already."""
    spaces = []
    if complexity.num_remote and space.two_cuts:
        spaces.append(replace(space, two_cuts=False))
    if (complexity.num_remote or complexity.num_extra) and (space.two_cuts or space.virtual_stages):
        spaces.append(replace(space, two_cuts=False, virtual_stages=False))
    return spaces


@dataclass(frozen=True)
class _Judged:
    solution: Solution
    prediction: Prediction
    over_bytes: float
    peak_bytes: float
    seconds: float
    """The time by which it is judged."""

    @property
    def key(self) -> tuple[Complexity, float]:
        return complexity_of(self.solution.plan), self.peak_bytes


def choose(solutions: Sequence[Solution], problem: Problem, *, seed: int, risk: float | None) -> Solution:
    """Choose the simplest of the plans that are as fast as the best one within the uncertainty of the difference.

    Args:
        solutions: Plans of the problem.
        problem: The problem; its profile states the errors.
        seed: Seed of the errors.
        risk: The quantile by which plans are judged; their expected time if None.
    """
    most = max(solution.program.num_actions for solution in solutions)
    num_samples = max(FEWEST_SAMPLES, min(NUM_SAMPLES, MOST_ACTIONS // most))
    judged = [_judge(solution, problem, seed, num_samples, risk) for solution in solutions]
    best = min(judged, key=lambda item: (item.over_bytes, item.seconds))
    prefers_simple = problem.profile.known_spread.is_measured
    chosen = min(
        (
            item
            for item in judged
            if item is best
            or (
                prefers_simple
                and item.over_bytes <= best.over_bytes
                and item.seconds <= best.seconds * (1 + item.prediction.uncertainty_over(best.prediction))
            )
        ),
        key=lambda item: item.key,
    )
    declined = [
        Declined(
            _describe(item, chosen),
            item.prediction.simulated_s,
            item.seconds,
            chosen.seconds,
            item.prediction.uncertainty_over(chosen.prediction),
        )
        for item in judged
        if item is not chosen
        and item.over_bytes <= chosen.over_bytes
        and item.prediction.simulated_s < chosen.prediction.simulated_s
    ]
    return replace(chosen.solution, declined=tuple(sorted(declined, key=lambda item: item.seconds)))


def _judge(solution: Solution, problem: Problem, seed: int, num_samples: int, risk: float | None) -> _Judged:
    result = evaluate_costs(solution.costs, program=solution.program, within_memory=False)
    prediction = predict(result.proof, problem.profile, seed=seed, num_samples=num_samples)
    return _Judged(
        solution,
        prediction,
        float(result.costs.over_bytes(result.proof.peak_bytes).max(initial=0.0)),
        float(result.proof.peak_bytes.max(initial=0.0)),
        prediction.expected_s if risk is None else prediction.quantile(risk),
    )


def _describe(item: _Judged, chosen: _Judged) -> str:
    """What a plan has more of than the chosen one."""
    more, less = item.key[0], chosen.key[0]
    parts = []
    if more.num_remote > less.num_remote:
        parts.append(show_count(more.num_remote, "remote backward"))
    if more.num_extra > less.num_extra:
        parts.append(f"{more.num_extra + 1} stages per device")
    return "a plan with " + (" and ".join(parts) or "more memory")
