"""The search on large symmetric clusters: by classes of devices, so that its time does not grow with their number.

A cluster of equal devices is folded (folding/fold.py) to several smaller ones. Each gives starts: straight pipelines,
loops and Vs, which are the regular grids of the whole cluster, and stages with unequal numbers of replicas
(folding/memory_stages.py), with and without recomputation. From the best of all folds, the search continues as on a
small cluster; a change applies to all members of a class. The best plans are expanded, and their scores are those of
the whole cluster.

Cost: as for a cluster of at most `MAX_FOLDED` devices, and `NUM_EXPANDED` scores of plans of the whole cluster.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.plan import Plan, Shape
from penstock.plan.pricing import price
from penstock.planners.auto.climber import Climber
from penstock.planners.auto.folding import Fold, folds, is_symmetric, memory_stages
from penstock.planners.auto.scoring import ScoredPlan
from penstock.planners.auto.search_state import SearchState
from penstock.planners.auto.starts import as_auto, recomputed
from penstock.planners.methods import balanced
from penstock.planners.problem import Problem
from penstock.schedules.search import Score, score_program

MIN_DEVICES = 64
"""Smaller clusters are searched device by device only."""
MAX_FOLDED = 128
"""Devices of the largest folded problem."""
MIN_UNEQUAL, MAX_UNEQUAL = 8, 32
"""Devices of the folded problems with unequal stages."""
NUM_CLIMBERS = 4
NUM_PER_FOLD = 2
"""How many of the climbers may start from the same fold."""
NUM_FULL = 6
"""How many of the best starts are ordered in full, beside the results of the search."""
NUM_EXPANDED = 3
"""How many of the best plans are scored on the whole cluster."""
CHUNKS = (2, 4)


class _Candidate(NamedTuple):
    score: Score
    number: int
    search: SearchState
    fold: Fold
    plan: Plan


def can_fold(search: SearchState) -> bool:
    """Whether a problem is large and symmetric."""
    space = search.search_space
    return (
        search.problem.cluster.num_devices >= MIN_DEVICES
        and space.replication
        and space.device_order
        and is_symmetric(search.problem)
    )


def folded_plans(search: SearchState) -> list[ScoredPlan]:
    """The best plans by classes, scored on the whole cluster; the best first."""
    candidates: list[_Candidate] = []
    unequal: dict[int, list[Plan]] = {}
    for fold in folds(search.problem, _sizes(search.problem), part_rows=search.search_space.part_rows):
        folded = SearchState(fold.problem, search.search_space, search.work, search.seed, search.report)
        folded.stopped = search.stopped
        size = len(fold.members)
        if size not in unequal:
            # Folds of the same size differ in their links only, which these plans do not depend on.
            is_small = MIN_UNEQUAL <= size <= MAX_UNEQUAL
            unequal[size] = list(memory_stages(fold.problem, search.search_space)) if is_small else []
        for plan in _starts(fold, search, unequal[size]):
            if folded.stopped and candidates:
                break
            folded.best = candidates[0].score if candidates else None
            score = folded.start_score(plan)
            candidates.append(_Candidate(score, len(candidates), folded, fold, plan))
            candidates.sort(key=lambda item: item[:2])
        search.stopped |= folded.stopped
    found = [*_climbed(search, candidates), *candidates[:NUM_FULL]]
    found.sort(key=lambda item: item.score)
    expanded = _expanded(search, found)
    search.best = expanded[0].score if expanded else None
    return expanded


def _sizes(problem: Problem) -> list[int]:
    num, most = problem.cluster.num_devices, min(MAX_FOLDED, problem.profile.num_units)
    return [size for size in range(2, most + 1) if num % size == 0]


def _starts(fold: Fold, search: SearchState, unequal: Sequence[Plan]) -> Iterator[Plan]:
    """Plans of a folded problem within the search space, each once."""
    seen = set()
    moved = [fold.problem.with_stages(plan) for plan in unequal]
    for plan in (*_grids(fold, search), *moved):
        candidate = as_auto(plan, search.search_space)
        if candidate.stages not in seen and search.allows(fold.expand(candidate)):
            seen.add(candidate.stages)
            yield candidate


def _grids(fold: Fold, search: SearchState) -> Iterator[Plan]:
    """Straight pipelines, loops and Vs of all classes."""
    problem, space = fold.problem, search.search_space
    layouts = [(Shape.STRAIGHT, 1)]
    if space.virtual_stages:
        layouts += [(shape, count) for count in CHUNKS for shape in (Shape.V, Shape.LOOP)]
    limited = problem.cluster.devices[0].memory_bytes is not None
    for shape, count in layouts:
        if problem.cluster.num_devices * count > problem.profile.num_units:
            continue
        with suppress(PenstockError):
            plan = balanced(replace(problem, shape=shape, num_chunks=count))
            yield plan
            if limited and space.recomputation and not problem.recompute:
                yield recomputed(plan)


def _climbed(search: SearchState, candidates: list[_Candidate]) -> list[_Candidate]:
    """The results of the search from the best candidates of several folds."""
    chosen: list[_Candidate] = []
    for item in candidates:
        if len(chosen) < NUM_CLIMBERS and sum(item.fold is other.fold for other in chosen) < NUM_PER_FOLD:
            chosen.append(item)
    found = []
    for item in chosen:
        folded = item.search
        folded.stopped |= search.stopped
        climber = Climber(folded, item.plan, folded.score(item.plan))
        changes = folded.num_changes(item.plan)
        for change in range(changes):
            climber.climb(change / changes)
        climber.settle(changes // 2)
        search.stopped |= folded.stopped
        found.append(item._replace(score=climber.score, plan=climber.plan))
    return found


def _expanded(search: SearchState, candidates: list[_Candidate]) -> list[ScoredPlan]:
    """The candidates in the order of their schedule; the best of them on the whole cluster."""
    ordered: list[tuple[Score, int, Fold, ScoredPlan]] = []
    for number, item in enumerate(candidates):
        best = min(ordered, key=lambda other: other[:2])[0] if ordered else None
        if best is not None and not item.search.scorer.can_beat(item.plan, best):
            continue
        scored = item.search.scorer.full(item.plan, best)
        ordered.append((scored.score, number, item.fold, scored))
    ordered.sort(key=lambda item: item[:2])
    problem, seen = search.problem, set()
    found: list[ScoredPlan] = []
    for _, _, fold, scored in ordered:
        plan = fold.expand(scored.costs.plan)
        if plan.stages in seen or len(found) == NUM_EXPANDED or not search.allows(plan):
            continue
        seen.add(plan.stages)
        costs = price(plan, problem.profile, problem.cluster, clock=problem.clock)
        program = fold.expand_program(scored.program, plan)
        found.append(ScoredPlan(score_program(program, costs), costs, program))
    return sorted(found, key=lambda item: item.score)
