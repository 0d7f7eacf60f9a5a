"""Auto: the best that all other planners give, then a search from there, judged by the simulator under memory limits.

1. Starts (starts.py): every other planner, regular grids, loops and Vs; what does not fit, also
   with recomputation.
   Devices are taken in an order that does not depend on their numbers (canonical.py).
2. Small problems: all maps of forward and backward runs to devices, in the order of their lower bounds.
3. Search: from the best of these, random small changes (moves.py) that are kept when they help: cuts, device order,
   number of stages, replication, forward and backward cut apart, recomputation. Quickly scored (scoring.py).
4. What other planners give and the best found are judged with every order that the schedule knows, from the quickest
   on; those that no order can make faster than the best so far are left out. So auto is never worse than any other
   planner with any schedule (up to the numbers of devices in starts.py).

Deterministic for a seed and an amount of work (plans looked at), not of time. Where nothing fits into memory, the plan
that comes nearest is returned, and the proof says who is short of what.

Cost: that of the other planners, and `work` simulations; fewer for programs of more than `LARGE` jobs.
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
from penstock.planners.auto.scoring import Judge
from penstock.planners.auto.starts import Starts, as_auto, closing_plans, recomputed, starting_plans
from penstock.planners.bounds import unit_times
from penstock.planners.exact import all_maps, map_bounds, num_maps, plan_of_map
from penstock.planners.methods import balanced
from penstock.planners.methods.spp import spp
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace, has_virtual_stages
from penstock.schedules.search import Score

WORK = 200
LARGE = 20_000
"""Jobs of a program above which the search looks at proportionally fewer plans."""
NUM_FINALS = 24
"""How many of the best maps of a small problem are judged in full."""
NUM_STARTS = 4
"""From how many of the best starts the search goes on."""
NUM_MORE = 8
"""How many of the best further starts are judged in full; what other planners give always is."""
FAR = 1.1
"""Starts that take so many times as long as the best are not looked at closely."""
CHANGES_IN_TURN = 20
NUM_SETTLED = 4
"""How many of the best found have their cuts moved as long as that helps."""
TOLERANCE = 0.05
"""By how much a change may at first make a plan slower and still be kept for now."""
MOST_MAPS = 60_000
"""Up to so many maps of a small problem are all considered."""
JUDGED_WHEN_STOPPED = 3
"""How many of the best are still judged in full when somebody does not want to wait any longer."""


class Progress(NamedTuple):
    """How far a search is."""

    num_plans: int
    work: int
    best: Score


Judging = Callable[[Plan, Score | None], Score]
Report = Callable[[Progress], bool]
"""Called after every plan; what it returns says whether to go on."""


def auto(
    problem: Problem,
    *,
    search_space: SearchSpace = SearchSpace(),  # noqa: B008 - frozen
    work: int = WORK,
    seed: int = 0,
    report: Report | None = None,
) -> Plan:
    """The best plan found within so much work.

    >>> from penstock.cluster.load import load_cluster
    >>> from penstock.profile.load import load_profile
    >>> problem = Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s"), 8)
    >>> auto(problem, work=10).schedule
    'auto'
    """
    turned = in_canonical_order(problem) if search_space.device_order else problem
    search = _Search(turned, search_space, work, seed, report)
    others, more = search.starts()
    ranked = search.ranked([*others, *more])
    maps = search.small_maps(ranked[0][0])
    climbers = [_Climber(search, plan, score) for score, _, plan in ranked[:NUM_STARTS]]
    climbers += [_Climber(search, plan, search.score(plan)) for plan in maps[:NUM_STARTS]]
    # In turn, a few changes each: so that all starts have had their share whenever the search is stopped.
    changes = left = search.num_changes(ranked[0][2])
    while left > 0 and not search.stopped:
        for climber in climbers:
            for _ in range(min(CHANGES_IN_TURN, left)):
                climber.climb(1 - left / changes)
            left -= CHANGES_IN_TURN
    for climber in sorted(climbers, key=lambda climber: climber.score)[:NUM_SETTLED]:
        climber.settle(changes // (2 * NUM_SETTLED))
    best_more = [plan for _, _, plan in search.ranked(more)[:NUM_MORE]]
    found = [*(climber.plan for climber in climbers), *maps, *best_more, *others]
    closing = [] if search.stopped else closing_plans(problem, search_space)
    if turned is problem:
        return search.judge([*found, *closing])
    # What the others give for the devices as they are numbered is judged too, so that auto is never worse.
    final = _Search(problem, search_space, work, seed, report)
    final.stopped = search.stopped
    origin = balanced(problem).cluster
    others = [] if final.stopped else final.starts().others
    return final.judge([*(msgspec.structs.replace(plan, cluster=origin) for plan in found), *others, *closing])


class _Search:
    def __init__(
        self, problem: Problem, search_space: SearchSpace, work: int, seed: int, report: Report | None
    ) -> None:
        self.problem = problem
        self.search_space = search_space
        self.work = work
        self.seed = seed
        self.report = report
        self.judge_of = Judge(problem, search_space)
        self.num_plans = 0
        self.best: Score | None = None
        self.seen: dict[object, Score] = {}
        self.stopped = False

    def starts(self) -> Starts:
        """Where to begin; if some do not fit, also all of them with everything recomputed."""
        found = starting_plans(self.problem, self.search_space)
        if not self.search_space.recomputation or self.problem.recompute:
            return found
        if all(self.start_score(plan).over_bytes == 0 for plan in chain(*found)):
            return found
        others, more = ([*plans, *map(recomputed, plans)] for plans in found)
        if self.search_space.replication:
            again = as_auto(spp(replace(self.problem, recompute=True)), self.search_space)
            others += [again] if self.allows(again) else []
        return Starts(others, more)

    def start_score(self, plan: Plan) -> Score:
        """The quick score, for loops and Vs the careful one; of a plan that is far from the best so far only that."""
        beat = self.best if self.best is None else Score(self.best.over_bytes, FAR * self.best.seconds)
        return self.score(plan, beat, self.judge_of.careful if has_virtual_stages(plan) else self.judge_of.quick)

    def ranked(self, plans: Iterable[Plan]) -> list[tuple[Score, int, Plan]]:
        """The plans with their quick scores, the best first."""
        scored = [(self.start_score(plan), number, plan) for number, plan in enumerate(plans)]
        return sorted(scored, key=lambda item: item[:2])

    def small_maps(self, best: Score) -> list[Plan]:
        """Where there are few enough: the best of all maps of forward and backward runs to devices, by their bounds."""
        problem, moved = self.problem, self.search_space.two_cuts
        if best.over_bytes > 0 or num_maps(problem, moved=moved) > MOST_MAPS:
            return []
        maps = all_maps(problem, moved=moved, recompute=False)
        bounds = map_bounds(unit_times(problem), maps)
        found: list[Plan] = []
        for turn in np.argsort(bounds, kind="stable")[: self.work].tolist():
            if bounds[turn] >= best.seconds or self.stopped:
                break
            made = as_auto(plan_of_map(problem, maps, turn), self.search_space)
            if self.allows(made):
                best = min(best, self.score(made))
                found.append(made)
        return [plan for _, _, plan in self.ranked(found)[:NUM_FINALS]]

    def allows(self, plan: Plan) -> bool:
        """Whether a plan keeps to the freedoms."""
        return self.search_space.allow(plan, self.problem.cluster, recompute=self.problem.recompute)

    def score(self, plan: Plan, beat: Score | None = None, judge: Judging | None = None) -> Score:
        """The quick score, once for each plan; if it does not beat another, only that is known."""
        if plan.stages not in self.seen:
            found = (judge or self.judge_of.quick)(plan, beat)
            self.seen[plan.stages] = found
            self.num_plans += 1
            self.best = found if self.best is None else min(self.best, found)
            self.tell()
        return self.seen[plan.stages]

    def num_changes(self, plan: Plan) -> int:
        """How many changes to try: as many as the work allows, fewer where each takes long."""
        jobs = 3 * self.problem.num_microbatches * sum(item.num_replicas for item in plan.stages)
        return round(self.work * min(1.0, LARGE / jobs))

    def moves(self) -> Moves:
        """Random changes within the freedoms."""
        return Moves(
            self.seed,
            [device.name for device in self.problem.cluster.devices[: self.problem.pipeline_depth]],
            self._group_of,
            replication=self.search_space.replication,
            moving=self.search_space.two_cuts,
            splitting=self.search_space.virtual_stages,
            recomputing=self.search_space.recomputation,
        )

    def tell(self) -> None:
        """Report, and find out whether to go on."""
        if self.report is not None and self.best is not None:
            self.stopped |= not self.report(Progress(self.num_plans, self.work, self.best))

    def judge(self, plans: Sequence[Plan]) -> Plan:
        """The best of these by all orders of the schedule; of those that nobody has, the first."""
        ranked = self.ranked({plan.stages: plan for plan in plans}.values())
        best: tuple[Score, Plan] | None = None
        for _, _, plan in ranked[: JUDGED_WHEN_STOPPED if self.stopped else None]:
            if best is not None and not self.judge_of.can_beat(plan, best[0]):
                continue
            found = self.judge_of.full(plan, best[0] if best else None)
            if best is None or found < best[0]:
                best = found, plan
        assert best is not None, "there is always a start"
        return best[1]

    def _group_of(self, names: Sequence[str]) -> Group | None:
        """The group with shares by speed."""
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
    """Changes one plan at random, and keeps what helps; at first also what is a little worse, so as not to be stuck."""

    def __init__(self, search: _Search, plan: Plan, score: Score) -> None:
        self._search = search
        self._moves = search.moves()
        self._now, self._now_score = plan, score
        self.plan, self.score = plan, score

    def climb(self, progress: float) -> None:
        """Try one change; `progress` is the part of the search that is done."""
        search = self._search
        if search.stopped:
            return
        changed = self._moves.draw(self._now)
        if changed is None or not search.allows(changed):
            search.tell()
            return
        limit = Score(self._now_score.over_bytes, self._now_score.seconds * (1 + TOLERANCE * (1 - progress)))
        found = search.score(changed, limit)
        if found < limit:
            self._now, self._now_score = changed, found
        if found < self.score:
            self.plan, self.score = changed, found
        elif self._now_score.seconds > self.score.seconds * (1 + 2 * TOLERANCE):
            self._now, self._now_score = self.plan, self.score

    def settle(self, most: int) -> None:
        """Move cuts, each in its turn, as long as that helps, and at most so many times."""
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
                found = self._search.score(changed, self.score)
                if found < self.score:
                    self.plan, self.score = changed, found
                    improved = True
                    break
