"""The state of a search of the planner auto: the scores of its plans, the best score, and the progress."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from penstock.plan import SHARE_TOLERANCE, Group, Plan, Replica, on
from penstock.plan.pricing import whole_rows
from penstock.planners.auto.moves import Moves
from penstock.planners.auto.scoring import PlanScorer, ScoredPlan
from penstock.planners.auto.starts import SPP_DEVICES, Starts, as_auto, recomputed, sharded, starting_plans
from penstock.planners.bounds import unit_times
from penstock.planners.exact import all_maps, map_bounds, num_maps, plan_of_map
from penstock.planners.methods.spp import spp
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace, has_virtual_stages
from penstock.planners.solution import Solution, make_solution
from penstock.schedules.ordering import in_turn
from penstock.schedules.search import Score

LARGE = 20_000
"""For programs with more actions the search evaluates proportionally fewer plans."""
NUM_FINALS = 24
"""How many of the best maps of a small problem get a full score."""
FAR = 1.1
"""Starts that take this many times as long as the best are not evaluated closely."""
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


class SearchState:
    """The plans that a search has scored, within the search space of one problem."""

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
        self.memory_binds = False
        """Whether some start does not fit."""

    def starts(self, *, more: bool = True) -> Starts:
        """The starting plans; those that do not fit also with sharded optimizers, then all with every stage recomputed.

        Args:
            more: Whether to return further candidates beside the plans of the other planners.
        """
        space = self.search_space
        starts = starting_plans(self.problem, space, more=more)
        may_recompute = space.recomputation and not self.problem.recompute
        may_shard = space.sharded_optimizer and space.replication
        if not (may_recompute or may_shard):
            return starts
        short = [plan for plan in chain(*starts) if _is_short(self.start_score(plan))]
        self.memory_binds = bool(short)
        if not short:
            return starts
        if may_shard:
            replicated = [plan for plan in short if any(item.can_shard_optimizer for item in plan.stages)]
            starts = Starts(starts.others, [*starts.more, *map(sharded, replicated)])
        if not may_recompute:
            return starts
        others, further = ([*plans, *map(recomputed, plans)] for plans in starts)
        if self.search_space.replication and self.problem.cluster.num_devices <= SPP_DEVICES:
            recomputed_spp = as_auto(spp(replace(self.problem, recompute=True)), self.search_space)
            others += [recomputed_spp] if self.allows(recomputed_spp) else []
        return Starts(others, further)

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
        bounds = map_bounds(unit_times(problem, replication=False), maps)
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
            recomputation=self.search_space.recomputation and self.search_space.part_recomputation,
            sharded_optimizer=self.search_space.sharded_optimizer and self.memory_binds,
        )

    def report_progress(self) -> None:
        """Report the progress, and stop if the receiver asks for it."""
        if self.report is not None and self.best is not None:
            self.stopped |= not self.report(Progress(self.num_plans, self.work, self.best))

    def choose_best(self, plans: Sequence[Plan], scored_plans: Sequence[ScoredPlan] = ()) -> Solution:
        """The plan with the best full score, also of plans that have theirs; the first of equal ones."""
        best = min(scored_plans, key=lambda item: item.score, default=None)
        ranked = self.ranked({plan.stages: plan for plan in plans}.values())
        for number, (_, _, plan) in enumerate(ranked):
            # Training refuses the best order of this plan: try the next plan.
            if self.stopped and number >= SCORED_WHEN_STOPPED and best is not None and not best.score.is_refused:
                break
            if best is not None and not self.scorer.can_beat(plan, best.score):
                continue
            scored = self.scorer.full(plan, best.score if best else None)
            if best is None or scored.score < best.score:
                best = scored
        assert best is not None, "there is always a start"
        return make_solution(best.costs, in_turn(best.program))

    def _group_of(self, names: Sequence[str]) -> Group | None:
        """The group of some devices with shares by speed; None if a device is too slow to get any rows."""
        if not self.search_space.unequal_shares:
            return on(*names)
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


def _is_short(score: Score) -> bool:
    """Whether a plan does not fit into memory, and training would not refuse it."""
    return score.over_bytes > 0 and not score.is_refused
