"""Auto: the best plan of all other planners, improved by a search that the simulator guides, within memory limits.

1. Starts (starts.py): plans of every other planner, regular grids, loops and Vs; if some do not fit, also with
   recomputation. Devices are in an order that does not depend on their numbering (canonical_order.py).
2. Small problems: all maps of forward and backward runs to devices, in the order of their lower bounds.
3. Search: from the best of these, random small changes (moves.py) that are kept if they help: cuts, device order,
   number of stages, replication, remote backwards, recomputation. Scores are quick (scoring.py).
   Large symmetric clusters: also by classes of equal devices (folded_search.py); above `MAX_DIRECT` devices only so.
4. The plans of other planners and the best of the search are ordered by the schedule in full, the fastest first; plans
   that no order can make faster than the best so far are skipped. So auto is never worse than any other planner with
   any schedule (up to the numbers of devices in starts.py).

The result is deterministic for a seed and an amount of work, which counts plans, not time. If no plan fits into memory,
the result is the plan that exceeds it least, and the proof reports which device lacks how much.

Cost: that of the other planners, and `work` simulations; fewer for programs of more than
`LARGE` actions (search_state.py).
"""

import msgspec

from penstock.plan import Plan
from penstock.plan.pricing import price
from penstock.planners.auto.canonical_order import in_canonical_order
from penstock.planners.auto.climber import Climber
from penstock.planners.auto.folded_search import can_fold, folded_plans
from penstock.planners.auto.preference import is_judged, search_simple_first
from penstock.planners.auto.search_state import Report, SearchState
from penstock.planners.auto.starts import closing_plans
from penstock.planners.joined_layers import join_layers
from penstock.planners.methods import balanced
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from penstock.planners.solution import Solution, make_solution

WORK = 200
MAX_DIRECT = 64
"""Larger symmetric clusters are searched by classes of devices only."""
NUM_STARTS = 4
"""How many of the best starts the search continues from."""
NUM_MORE = 8
"""How many of the best further starts get a full score; plans of other planners always do."""
CHANGES_IN_TURN = 20
"""How many changes of one climber are tried before the next one continues."""
NUM_SETTLED = 4
"""How many of the best plans have their cuts shifted as long as that helps."""


def auto(
    problem: Problem,
    *,
    search_space: SearchSpace = SearchSpace(),  # noqa: B008 - frozen
    work: int = WORK,
    seed: int = 0,
    report: Report | None = None,
    risk: float | None = None,
) -> Plan:
    """Search for the best plan.

    Args:
        problem: The problem.
        search_space: Features that plans may use.
        work: Number of plans to evaluate.
        seed: Seed of the random changes. The same seed and work give the same plan.
        report: Receives the progress, and may stop the search.
        risk: Judge plans by this quantile of their predicted time.

    Returns:
        The best plan, with the order of its compute actions.

    >>> from penstock.cluster.load import load_cluster
    >>> from penstock.profile.load import load_profile
    >>> problem = Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s"), 8)
    >>> auto(problem, work=10).schedule
    'auto'
    """
    return search_plans(problem, search_space=search_space, work=work, seed=seed, report=report, risk=risk).plan


def search_plans(
    problem: Problem,
    *,
    search_space: SearchSpace,
    work: int = WORK,
    seed: int = 0,
    report: Report | None = None,
    risk: float | None = None,
) -> Solution:
    """Search for the best plan; like `auto`, but also return the plan's costs and program.

    With a measured spread of the profile, or with a quantile `risk`, simpler search spaces are searched too, and their
    best plans are judged by perturbed simulations (preference.py).

    Raises:
        InputError: Some layers must be in one stage, and the problem requires more stages than that leaves; or training
            refuses all plans in the search space.
    """

    def search(space: SearchSpace) -> Solution:
        return _search(problem, search_space=space, work=work, seed=seed, report=report)

    if not is_judged(problem, risk):
        return search(search_space)
    return search_simple_first(problem, search_space, search, seed=seed, risk=risk)


def _search(problem: Problem, *, search_space: SearchSpace, work: int, seed: int, report: Report | None) -> Solution:
    """Find the plan with the shortest simulated time."""
    joined = join_layers(problem)
    if joined is not None:
        found = _search(joined.problem, search_space=search_space, work=work, seed=seed, report=report)
        plan = joined.expand(found.plan)
        return make_solution(price(plan, problem.profile, problem.cluster, clock=problem.clock), found.program)
    reordered = in_canonical_order(problem) if search_space.device_order else problem
    search = SearchState(reordered, search_space, work, seed, report)
    by_classes = folded_plans(search) if can_fold(search) else []
    if by_classes and reordered is problem and problem.cluster.num_devices > MAX_DIRECT:
        return search.choose_best(search.starts(more=False).others, by_classes)
    others, more = search.starts()
    ranked = search.ranked([*others, *more])
    maps = search.small_maps(ranked[0][0])
    climbers = [Climber(search, plan, score) for score, _, plan in ranked[:NUM_STARTS]]
    climbers += [Climber(search, plan, search.score(plan)) for plan in maps[:NUM_STARTS]]
    # A few changes of each climber in turn, so that all have had an equal share whenever the search is stopped.
    changes = left = search.num_changes(ranked[0][2]) // (2 if by_classes else 1)
    while left > 0 and not search.stopped:
        for climber in climbers:
            for _ in range(min(CHANGES_IN_TURN, left)):
                climber.climb(1 - left / changes)
            left -= CHANGES_IN_TURN
    for climber in sorted(climbers, key=lambda climber: climber.score)[:NUM_SETTLED]:
        climber.settle(changes // (2 * NUM_SETTLED))
    best_more = [plan for _, _, plan in search.ranked(more)[:NUM_MORE]]
    candidates = [*(climber.plan for climber in climbers), *maps, *best_more, *others]
    closing = [] if search.stopped else closing_plans(problem, search_space)
    if reordered is problem:
        return search.choose_best([*candidates, *closing], by_classes)
    # Also evaluate the other planners' plans for the given numbering of the devices, so that auto is never worse.
    final = SearchState(problem, search_space, work, seed, report)
    final.stopped = search.stopped
    origin = balanced(problem).cluster
    candidates += [item.costs.plan for item in by_classes]
    others = [] if final.stopped else final.starts().others
    return final.choose_best(
        [*(msgspec.structs.replace(plan, cluster=origin) for plan in candidates), *others, *closing]
    )
