"""Auto: the best plan of all other planners, improved by a search that the simulator guides, within memory limits.

1. Starts (starts.py): plans of every other planner, regular grids, loops and Vs; if some do not fit, also with
   recomputation. Devices are in an order that does not depend on their numbering (canonical_order.py).
2. Small problems: all maps of forward and backward runs to devices, in the order of their lower bounds.
3. Search: from the best of these, random small changes (moves.py) that are kept if they help: cuts, device order,
   number of stages, replication, remote backwards, recomputation. Scores are quick (scoring.py).
4. The plans of other planners and the best of the search are ordered by the schedule in full, the fastest first; plans
   that no order can make faster than the best so far are skipped. So auto is never worse than any other planner with
   any schedule (up to the numbers of devices in starts.py).

The result is deterministic for a seed and an amount of work, which counts plans, not time. If no plan fits into memory,
the result is the plan that exceeds it least, and the proof reports which device lacks how much.

Cost: that of the other planners, and `work` simulations; fewer for programs of more than `LARGE` actions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.plan import SHARE_TOLERANCE, Group, Plan, Replica
from penstock.plan.pricing import whole_rows
from penstock.planners.auto.canonical_order import in_canonical_order
from penstock.planners.auto.moves import Moves, shifted_cuts
from penstock.planners.auto.scoring import PlanScorer, ScoredPlan
from penstock.planners.auto.starts import Starts, as_auto, closing_plans, recomputed, starting_plans
from penstock.planners.bounds import unit_times
from penstock.planners.exact import all_maps, map_bounds, num_maps, plan_of_map
from penstock.planners.methods import balanced
from penstock.planners.methods.spp import spp
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace, has_virtual_stages
from penstock.planners.solution import Solution, make_solution
from penstock.schedules.ordering import in_turn
from penstock.schedules.search import Score

WORK = 200
LARGE = 20_000
"""For programs with more actions the search evaluates proportionally fewer plans."""
NUM_FINALS = 24
"""How many of the best maps of a small problem get a full score."""
NUM_STARTS = 4
"""How many of the best starts the search continues from."""
NUM_MORE = 8
"""How many of the best further starts get a full score; plans of other planners always do."""
FAR = 1.1
"""Starts that take this many times as long as the best are not evaluated closely."""
CHANGES_IN_TURN = 20
"""How many changes of one climber are tried before the next one continues."""
NUM_SETTLED = 4
"""How many of the best plans have their cuts shifted as long as that helps."""
TOLERANCE = 0.05
"""By which fraction a change may make a plan slower and still be kept, at the start of the search."""
MAX_MAPS = 60_000
"""Problems with at most this many maps count as small."""
SCORED_WHEN_STOPPED = 3
"""How many of the best plans still get a full score when the search is stopped early."""


class Progress(NamedTuple):
    """The progress of a search: plans evaluated so far, the amount of work, and the best score."""

    num_plans: int
    work: int
    best: Score


ScorePlan = Callable[[Plan, Score | None], Score]
Report = Callable[[Progress], bool]
"""Called after every plan; returns whether to continue."""


def auto(
    problem: Problem,
    *,
    search_space: SearchSpace = SearchSpace(),  # noqa: B008 - frozen
    work: int = WORK,
    seed: int = 0,
    report: Report | None = None,
) -> Plan:
    """Search for the best plan.

    Args:
        problem: The problem.
        search_space: Features that plans may use.
        work: Number of plans to evaluate.
        seed: Seed of the random changes. The same seed and work give the same plan.
        report: Receives the progress, and may stop the search.

    Returns:
        The best plan, with the order of its compute actions.

    >>> from penstock.cluster.load import load_cluster
    >>> from penstock.profile.load import load_profile
    >>> problem = Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s"), 8)
    >>> auto(problem, work=10).schedule
    'auto'
    """
    return search_plans(problem, search_space=search_space, work=work, seed=seed, report=report).plan


def search_plans(
    problem: Problem, *, search_space: SearchSpace, work: int = WORK, seed: int = 0, report: Report | None = None
) -> Solution:
    """Search for the best plan; like `auto`, but also return the plan's costs and program."""
    reordered = in_canonical_order(problem) if search_space.device_order else problem
    search = _Search(reordered, search_space, work, seed, report)
    others, more = search.starts()
    ranked = search.ranked([*others, *more])
    maps = search.small_maps(ranked[0][0])
    climbers = [_Climber(search, plan, score) for score, _, plan in ranked[:NUM_STARTS]]
    climbers += [_Climber(search, plan, search.score(plan)) for plan in maps[:NUM_STARTS]]
    # A few changes of each climber in turn, so that all have had an equal share whenever the search is stopped.
    changes = left = search.num_changes(ranked[0][2])
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
        return search.choose_best([*candidates, *closing])
    # Also evaluate the other planners' plans for the given numbering of the devices, so that auto is never worse.
    final = _Search(problem, search_space, work, seed, report)
    final.stopped = search.stopped
    origin = balanced(problem).cluster
    others = [] if final.stopped else final.starts().others
    return final.choose_best(
        [*(msgspec.structs.replace(plan, cluster=origin) for plan in candidates), *others, *closing]
    )


class _Search:
    def __init__(
        self, problem: Problem, search_space: SearchSpace, work: int, seed: int, report: Report | None
    ) -> None:
        self.problem = problem
        self.search_space = search_space
        self.work = work
        self.seed = seed
        self.report = report
        self.scorer = PlanScorer(problem, search_space)
        self.num_plans = 0
        self.best: Score | None = None
        self.seen: dict[object, Score] = {}
        self.stopped = False

    def starts(self) -> Starts:
        """The starting plans; if some do not fit, also all of them with every stage recomputed."""
        starts = starting_plans(self.problem, self.search_space)
        if not self.search_space.recomputation or self.problem.recompute:
            return starts
        if all(self.start_score(plan).over_bytes == 0 for plan in chain(*starts)):
            return starts
        others, more = ([*plans, *map(recomputed, plans)] for plans in starts)
        if self.search_space.replication:
            recomputed_spp = as_auto(spp(replace(self.problem, recompute=True)), self.search_space)
            others += [recomputed_spp] if self.allows(recomputed_spp) else []
        return Starts(others, more)

    def start_score(self, plan: Plan) -> Score:
        """The quick score, or the careful one for loops and Vs; not exact for plans that are far from the best."""
        beat = self.best if self.best is None else Score(self.best.over_bytes, FAR * self.best.seconds)
        return self.score(plan, beat, self.scorer.careful if has_virtual_stages(plan) else self.scorer.quick)

    def ranked(self, plans: Iterable[Plan]) -> list[tuple[Score, int, Plan]]:
        """Sort plans by their quick scores, the best first."""
        scored = [(self.start_score(plan), number, plan) for number, plan in enumerate(plans)]
        return sorted(scored, key=lambda item: item[:2])

    def small_maps(self, best: Score) -> list[Plan]:
        """For a small problem, the best of all maps of forward and backward runs to devices, by their bounds."""
        problem, remote_backward = self.problem, self.search_space.two_cuts
        if best.over_bytes > 0 or num_maps(problem, remote_backward=remote_backward) > MAX_MAPS:
            return []
        maps = all_maps(problem, remote_backward=remote_backward, recompute=False)
        bounds = map_bounds(unit_times(problem), maps)
        plans: list[Plan] = []
        for map_index in np.argsort(bounds, kind="stable")[: self.work].tolist():
            if bounds[map_index] >= best.seconds or self.stopped:
                break
            candidate = as_auto(plan_of_map(problem, maps, map_index), self.search_space)
            if self.allows(candidate):
                best = min(best, self.score(candidate))
                plans.append(candidate)
        return [plan for _, _, plan in self.ranked(plans)[:NUM_FINALS]]

    def allows(self, plan: Plan) -> bool:
        """Whether a plan is within the search space."""
        return self.search_space.allow(plan, self.problem.cluster, recompute=self.problem.recompute)

    def score(self, plan: Plan, beat: Score | None = None, score_plan: ScorePlan | None = None) -> Score:
        """The quick score, computed once for each plan; not exact if it does not beat the score `beat`."""
        if plan.stages not in self.seen:
            score = (score_plan or self.scorer.quick)(plan, beat)
            self.seen[plan.stages] = score
            self.num_plans += 1
            self.best = score if self.best is None else min(self.best, score)
            self.report_progress()
        return self.seen[plan.stages]

    def num_changes(self, plan: Plan) -> int:
        """How many changes to try: as many as the work allows, fewer if each takes long."""
        jobs = 3 * self.problem.num_microbatches * sum(item.num_replicas for item in plan.stages)
        return round(self.work * min(1.0, LARGE / jobs))

    def moves(self) -> Moves:
        """Random changes within the search space."""
        return Moves(
            self.seed,
            [device.name for device in self.problem.cluster.devices[: self.problem.pipeline_depth]],
            self._group_of,
            replication=self.search_space.replication,
            remote_backward=self.search_space.two_cuts,
            virtual_stages=self.search_space.virtual_stages,
            recomputation=self.search_space.recomputation,
        )

    def report_progress(self) -> None:
        """Report the progress, and stop if the receiver asks for it."""
        if self.report is not None and self.best is not None:
            self.stopped |= not self.report(Progress(self.num_plans, self.work, self.best))

    def choose_best(self, plans: Sequence[Plan]) -> Solution:
        """The plan with the best full score; the first of equal ones."""
        ranked = self.ranked({plan.stages: plan for plan in plans}.values())
        best: ScoredPlan | None = None
        for _, _, plan in ranked[: SCORED_WHEN_STOPPED if self.stopped else None]:
            if best is not None and not self.scorer.can_beat(plan, best.score):
                continue
            scored = self.scorer.full(plan, best.score if best else None)
            if best is None or scored.score < best.score:
                best = scored
        assert best is not None, "there is always a start"
        return make_solution(best.costs, in_turn(best.program))

    def _group_of(self, names: Sequence[str]) -> Group | None:
        """The group of some devices with shares by speed; None if a device is too slow to get any rows."""
        index, clock = self.problem.cluster.index, self.problem.clock
        seconds = [float(clock.work(index[name])[-1]) for name in names]
        fastest = min(seconds)
        speeds = [fastest / value for value in seconds] if fastest > 0 else [1.0 for _ in names]
        shares = [speed / sum(speeds) for speed in speeds]
        if not self.search_space.part_rows:
            rows = whole_rows(shares, self.problem.rows_per_microbatch)
            if rows is None:
                return None
            shares = [count / self.problem.rows_per_microbatch for count in rows]
        if min(shares) <= SHARE_TOLERANCE * 10:
            return None
        return tuple(Replica(name, share) for name, share in zip(names, shares, strict=True))


class _Climber:
    """Changes a plan at random and keeps improvements; at first also small losses, to escape local optima."""

    def __init__(self, search: _Search, plan: Plan, score: Score) -> None:
        self._search = search
        self._moves = search.moves()
        self._current, self._current_score = plan, score
        self.plan, self.score = plan, score

    def climb(self, progress: float) -> None:
        """Try one change; `progress` is the completed fraction of the search."""
        search = self._search
        if search.stopped:
            return
        changed = self._moves.draw(self._current)
        if changed is None or not search.allows(changed):
            search.report_progress()
            return
        limit = Score(self._current_score.over_bytes, self._current_score.seconds * (1 + TOLERANCE * (1 - progress)))
        score = search.score(changed, limit)
        if score < limit:
            self._current, self._current_score = changed, score
        if score < self.score:
            self.plan, self.score = changed, score
        elif self._current_score.seconds > self.score.seconds * (1 + 2 * TOLERANCE):
            self._current, self._current_score = self.plan, self.score

    def settle(self, most: int) -> None:
        """Shift one cut at a time as long as that helps, with at most `most` evaluations."""
        tries = 0
        improved = True
        while improved and not self._search.stopped:
            improved = False
            for changed in shifted_cuts(self.plan):
                if tries >= most:
                    return
                if changed.stages in self._search.seen or not self._search.allows(changed):
                    continue
                tries += 1
                score = self._search.score(changed, self.score)
                if score < self.score:
                    self.plan, self.score = changed, score
                    improved = True
                    break
