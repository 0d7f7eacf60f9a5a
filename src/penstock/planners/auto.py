"""Auto: the best that all other planners give, then a search from there, judged by the simulator under memory limits.

1. Starts: every other planner, and the shapes loop and V; each with the schedule `auto`, which is at least as good as
   any other schedule. So auto is never worse than any of them with any schedule.
2. Small problems: all maps of forward and backward runs to devices, in the order of their lower bounds.
3. Search: from the best of these, random small changes (moves.py) that are kept when they help: cuts, device order,
   number of stages, replication, forward and backward cut apart, recomputation. Quickly scored (scoring.py).
4. The best few are judged in full, with every order that the schedule `auto` knows; the fastest that fits is returned.

Deterministic for a seed and an amount of work (plans looked at), not of time. Where nothing fits into memory, the plan
that comes nearest is returned, and the proof says who is short of what.

Cost: that of the other planners, and `work` simulations; fewer for programs of more than `LARGE` jobs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.errors import PenstockError
from penstock.plan.pricing import price
from penstock.plan.shapes import Shape
from penstock.plan.types import SHARE_TOLERANCE, Group, Member, Plan
from penstock.planners.balanced import balanced
from penstock.planners.bipartition import bipartition
from penstock.planners.dapple import dapple
from penstock.planners.data_parallel import data_parallel
from penstock.planners.exact_bounds import map_bounds
from penstock.planners.exact_maps import all_maps, num_maps, plan_of_map
from penstock.planners.moves import Moves
from penstock.planners.pipedream import pipedream
from penstock.planners.problem import Problem
from penstock.planners.scoring import Score, score_plan, score_program
from penstock.planners.spp import spp
from penstock.planners.uniform import uniform
from penstock.planners.unit_times import unit_times
from penstock.schedules import SCHEDULES
from penstock.schedules.auto import auto as best_order

LARGE = 20_000
"""Jobs of a program above which the search looks at proportionally fewer plans."""
NUM_FINALS = 24
"""How many of the best maps of a small problem are judged in full."""
NUM_STARTS = 4
"""From how many of the best starts the search goes on."""
CHANGES_IN_TURN = 20
QUICK_BIPARTITION = 1_000
"""Units times devices up to which Bi-Partition is tried for every schedule."""
MOST_MAPS = 20_000
"""Up to so many maps of a small problem are all considered."""
DAPPLE_DEVICES = 64
"""Above this many devices DAPPLE's search takes too long to be a start."""


@dataclass(frozen=True)
class Freedoms:
    """What the search may use; all of it unless switched off, as for engines that lack it."""

    replication: bool = True
    two_cuts: bool = True
    """Forward and backward cut at different places."""
    virtual_stages: bool = True
    """Several segments a device."""
    recomputation: bool = True


class Progress(NamedTuple):
    """How far a search is."""

    num_plans: int
    work: int
    best: Score


Report = Callable[[Progress], bool]
"""Called after every plan; what it returns says whether to go on."""


def auto(
    problem: Problem,
    *,
    freedoms: Freedoms = Freedoms(),  # noqa: B008 - frozen
    work: int = 1000,
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
    search = _Search(problem, freedoms, work, seed, report)
    starts = search.starts()
    ranked = sorted(
        ((search.score(plan), number, plan) for number, plan in enumerate(starts)), key=lambda item: item[:2]
    )
    maps = search.small_maps(ranked[0][0])
    climbers = [_Climber(search, plan, score) for score, _, plan in ranked[:NUM_STARTS]]
    climbers += [_Climber(search, plan, search.score(plan)) for plan in maps[:NUM_STARTS]]
    # In turn, a few changes each: so that all starts have had their share whenever the search is stopped.
    left = search.num_changes(ranked[0][2])
    while left > 0 and not search.stopped:
        for climber in climbers:
            for _ in range(min(CHANGES_IN_TURN, left)):
                climber.climb()
            left -= CHANGES_IN_TURN
    return search.judge([*starts, *maps, *(climber.plan for climber in climbers)])


class _Search:
    def __init__(self, problem: Problem, freedoms: Freedoms, work: int, seed: int, report: Report | None) -> None:
        self.problem = problem
        self.freedoms = freedoms
        self.work = work
        self.seed = seed
        self.report = report
        self.num_plans = 0
        self.best: Score | None = None
        self.seen: dict[object, Score] = {}
        self.stopped = False

    def starts(self) -> list[Plan]:
        """The plans of all other planners that use only what may be used, each once."""
        found: dict[object, Plan] = {}
        for plan in self._planned():
            plan = msgspec.structs.replace(plan, planner="auto", schedule="auto", split_backward=False)  # noqa: PLW2901
            found.setdefault(plan.segments, plan)
        return list(found.values())

    def _planned(self) -> Iterator[Plan]:
        problem, free = self.problem, self.freedoms
        yield balanced(problem)
        yield uniform(problem)
        if free.virtual_stages and problem.shape is Shape.STRAIGHT and problem.profile.num_units > 1:
            for shape in (Shape.V, Shape.LOOP):
                try:
                    laid = replace(problem, shape=shape, num_chunks=2)
                except PenstockError:
                    continue  # more segments than units
                yield balanced(laid)
                yield uniform(laid)
        if free.two_cuts:
            yield from self._two_sets()
        yield pipedream(problem, replication=False)
        if free.replication:
            yield pipedream(problem)
            yield spp(problem)
            with suppress(PenstockError):  # a device too slow to take any rows
                yield data_parallel(problem)
            if problem.cluster.num_devices <= DAPPLE_DEVICES:
                yield dapple(problem)

    def _two_sets(self) -> Iterator[Plan]:
        """Bi-Partition chooses for a schedule: for all of them where that is quick."""
        problem = self.problem
        is_quick = problem.profile.num_units * problem.cluster.num_devices <= QUICK_BIPARTITION
        for item in SCHEDULES.values() if is_quick else ():
            chunks = 1 if item.shape is Shape.STRAIGHT else 2
            if chunks == 1 or (self.freedoms.virtual_stages and problem.profile.num_units > 1):
                yield bipartition(replace(problem, schedule=item.name, shape=item.shape, num_chunks=chunks))
        if not is_quick:
            yield bipartition(replace(problem, schedule="zb_h1"))

    def small_maps(self, best: Score) -> list[Plan]:
        """Where there are few enough: the best of all maps of forward and backward runs to devices, by their bounds."""
        problem, moved = self.problem, self.freedoms.two_cuts
        if best.over_bytes > 0 or num_maps(problem, moved=moved) > MOST_MAPS:
            return []
        maps = all_maps(problem, moved=moved, recompute=False)
        bounds = map_bounds(unit_times(problem), maps)
        found: list[tuple[Score, int, Plan]] = []
        for turn in np.argsort(bounds, kind="stable")[: self.work].tolist():
            if bounds[turn] >= best.seconds or self.stopped:
                break
            made = plan_of_map(problem, maps, turn)
            made = msgspec.structs.replace(made, planner="auto", schedule="auto", split_backward=False)
            score = self.score(made)
            best = min(best, score)
            found.append((score, turn, made))
        return [plan for _, _, plan in sorted(found, key=lambda item: item[:2])[:NUM_FINALS]]

    def score(self, plan: Plan, beat: Score | None = None) -> Score:
        """The quick score, once for each plan; if it does not beat another, only that is known."""
        if plan.segments not in self.seen:
            found = score_plan(plan, self.problem.profile, self.problem.cluster, beat)
            self.seen[plan.segments] = found
            self.num_plans += 1
            self.best = found if self.best is None else min(self.best, found)
            self.tell()
        return self.seen[plan.segments]

    def num_changes(self, plan: Plan) -> int:
        """How many changes to try: as many as the work allows, fewer where each takes long."""
        jobs = 3 * self.problem.num_microbatches * sum(item.num_replicas for item in plan.segments)
        return round(self.work * min(1.0, LARGE / jobs))

    def moves(self) -> Moves:
        """Random changes within the freedoms."""
        return Moves(
            self.seed,
            [device.name for device in self.problem.cluster.devices[: self.problem.num_stages]],
            self._group_of,
            replication=self.freedoms.replication,
            moving=self.freedoms.two_cuts,
            splitting=self.freedoms.virtual_stages,
            recomputing=self.freedoms.recomputation,
        )

    def tell(self) -> None:
        """Report, and find out whether to go on."""
        if self.report is not None and self.best is not None:
            self.stopped |= not self.report(Progress(self.num_plans, self.work, self.best))

    def judge(self, plans: Sequence[Plan]) -> Plan:
        """The best of these by all orders of the schedule auto."""
        best: tuple[Score, Plan] | None = None
        for plan in {plan.segments: plan for plan in plans}.values():
            costs = price(plan, self.problem.profile, self.problem.cluster)
            found = score_program(best_order(costs), costs)
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
        if min(shares) <= SHARE_TOLERANCE * 10:
            return None
        return tuple(Member(name, share) for name, share in zip(names, shares, strict=True))


class _Climber:
    """Changes one plan at random, and keeps what helps."""

    def __init__(self, search: _Search, plan: Plan, score: Score) -> None:
        self._search = search
        self._moves = search.moves()
        self.plan = plan
        self.score = score

    def climb(self) -> None:
        """Try one change."""
        search = self._search
        if search.stopped:
            return
        changed = self._moves.draw(self.plan)
        if changed is None or changed.segments in search.seen:
            search.tell()
            return
        found = search.score(changed, self.score)
        if found < self.score:
            self.plan, self.score = changed, found
