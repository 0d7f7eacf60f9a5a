"""What would help where a plan does not fit into memory: each thing tried, and told as what came of it.

Tried are the schedule auto, recomputation, micro-batches of fewer rows (as many more of them), both together where
neither is enough, and more devices like the last one. Each is planned again with the same planner (auto without its
search, since it tries recomputation and all orders anyway); with `balanced` where that planner takes long (effort.py).
Where memory_floor.py shows that no plan fits, that is said, and only more devices are tried. Cost: at most some twenty
quick plans, or a few of auto's.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.errors import PenstockError
from penstock.plan import Plan, Shape
from penstock.planners.auto import auto
from penstock.planners.problem import Problem
from penstock.planners.registry import find_planner
from penstock.planners.search_space import SearchSpace
from penstock.planners.studies.memory_floor import MemoryFloor, memory_floor, more_devices
from penstock.planners.studies.quick_planners import is_quick, is_quick_for_auto
from penstock.profile import Profile
from penstock.program.proof import Proof
from penstock.simulate import evaluate
from penstock.units import show_bytes, show_seconds

ProfileAt = Callable[[int], Profile]
"""The profile for so many rows a micro-batch."""

MOST_DEVICES = 256
MOST_TIMES = 8
"""Clusters are enlarged up to so many devices, and so many times their size, whichever comes first."""
MOST_FACTOR = 1_000
"""A number of rows without a divisor below this is tried whole, and then as single rows."""


@dataclass(frozen=True)
class Trial:
    """What came of planning a changed problem."""

    change: str
    short_bytes: float
    """By how much the device that is shortest of memory is short; 0 where the plan fits."""
    outcome: str

    @property
    def in_words(self) -> str:
        """A line for people."""
        return f"with {self.change} {self.outcome}"


def what_would_help(
    problem: Problem, proof: Proof, *, profile_at: ProfileAt | None = None, search_space: SearchSpace | None = None
) -> list[str]:
    """Lines that say what was tried and what came of it; none where trying would take long.

    `profile_at` gives the profile for another micro-batch size, where it can be computed; without it, times and
    sizes are scaled as the profile says. `freedoms` are what auto had.
    """
    floor = memory_floor(problem)
    lines = list(floor.lines) if floor else []
    planner = proof.costs.plan.planner
    if planner == "auto":
        return lines + _told(_AutoTrials(problem, profile_at, search_space or SearchSpace()), floor)
    stands_in = not is_quick(planner, problem)
    if (floor and floor.least_devices is None) or (stands_in and not is_quick("balanced", problem)):
        return lines
    trials = _Trials(problem, "balanced" if stands_in else planner, stands_in, profile_at)
    lines += _told(trials, floor)
    if not floor:
        lines.append("not tried: --planner auto, which looks for plans that fit")
    return lines


def _told(trials: "_Trials", floor: MemoryFloor | None) -> list[str]:
    """What came of all that is worth trying."""
    if floor and floor.least_devices is None:
        return []
    found = list(trials.with_more_devices(floor.least_devices) if floor and floor.least_devices else trials.run())
    lines = [trial.in_words for trial in found]
    if found and not any(trial.short_bytes == 0 for trial in found):
        lines.append("nothing that was tried is enough")
    return lines


class _Trials:
    def __init__(self, problem: Problem, planner: str, stands_in: bool, profile_at: ProfileAt | None) -> None:
        self._problem = problem
        self._planner = planner
        self._profile_at = profile_at
        # Where another planner stands in, and where another schedule would choose another shape, options say so.
        self._fixed = [f"--planner {planner} --schedule {problem.schedule}"] if stands_in else []
        self._in_shape = (
            [f"--shape {problem.shape} --chunks {problem.num_chunks}"] if problem.shape is not Shape.STRAIGHT else []
        )

    def _is_quick(self, problem: Problem) -> bool:
        return is_quick(self._planner, problem)

    def _plan(self, problem: Problem) -> Plan:
        return find_planner(self._planner).plan(problem)

    def run(self) -> Iterator[Trial]:
        """Every change on its own, then recomputation and fewer rows together if neither was enough."""
        problem = self._problem
        if not problem.schedule.startswith("auto"):
            planner = [f"--planner {self._planner}"] if self._fixed else []
            words = " ".join([*planner, "--schedule auto", *self._in_shape])
            yield from self._tried(words, replace(problem, schedule="auto"))
        recomputing = replace(problem, recompute=True)
        alone = [] if problem.recompute else list(self._tried(self._words("--recompute"), recomputing))
        yield from alone
        fewer = self._first_that_fits(self._with_fewer_rows(problem))
        yield from fewer
        if not problem.recompute and fewer and all(trial.short_bytes > 0 for trial in (*alone, *fewer)):
            yield from self._first_that_fits(self._with_fewer_rows(recomputing, "--recompute"))
        yield from self.with_more_devices()

    def _words(self, *changes: str) -> str:
        """The options in a row, as they are typed, and behind them what is no option."""
        options = [*self._fixed, *(item for item in changes if item.startswith("--"))]
        return " and ".join(filter(None, (" ".join(options), *(item for item in changes if item not in options))))

    def _with_fewer_rows(self, problem: Problem, *ahead: str) -> Iterator[Trial]:
        """The same rows an iteration in ever more micro-batches, down to one row each."""
        micro_batch_size, count = problem.rows_per_microbatch, problem.num_microbatches
        while micro_batch_size > 1:
            factor = next(
                (number for number in range(2, MOST_FACTOR) if micro_batch_size % number == 0), micro_batch_size
            )
            micro_batch_size, count = micro_batch_size // factor, count * factor
            with suppress(PenstockError):  # more micro-batches than can be
                if self._profile_at is None:
                    changed = replace(problem, micro_batch_size=micro_batch_size, num_microbatches=count)
                    words = f"{count} micro-batches of {micro_batch_size} row{'s' if micro_batch_size > 1 else ''}"
                else:
                    changed = replace(
                        problem,
                        profile=self._profile_at(micro_batch_size),
                        micro_batch_size=None,
                        num_microbatches=count,
                    )
                    words = f"--micro-batch-size {micro_batch_size} -m {count}"
                yield from self._tried(self._words(*ahead, words), changed)

    def _first_that_fits(self, trials: Iterator[Trial]) -> list[Trial]:
        """The first that fits, or else the last."""
        last: list[Trial] = []
        for trial in trials:
            last = [trial]
            if trial.short_bytes == 0:
                break
        return last

    def with_more_devices(self, least: int = 1) -> Iterator[Trial]:
        """At least so many devices, doubled until it fits, then between that and half of it."""
        before = self._problem.cluster.num_devices
        low, high = (least - 1, least) if least > before else (before, 2 * before)
        most = min(MOST_DEVICES, MOST_TIMES * before)
        last = self._on(high) if high <= most else None
        while last is not None and last.short_bytes > 0 and 2 * high <= most:
            low, high = high, 2 * high
            last = self._on(high) or last
        while last is not None and last.short_bytes == 0 and high - low > 1:
            middle = (low + high) // 2
            trial = self._on(middle)
            if trial is None or trial.short_bytes > 0:
                low = middle
            else:
                high, last = middle, trial
        if last is not None:
            yield last

    def _on(self, count: int) -> Trial | None:
        cluster = more_devices(self._problem.cluster, count)
        added = count - self._problem.cluster.num_devices
        like = self._problem.cluster.devices[-1].name
        words = f"{added} more device{'s' if added > 1 else ''} like {like} ({count} in all)"
        return next(self._tried(self._words(words), replace(self._problem, cluster=cluster, pipeline_depth=None)), None)

    def _tried(self, change: str, problem: Problem) -> Iterator[Trial]:
        """The trial, or nothing where it would take long or cannot be planned."""
        if not self._is_quick(problem):
            return
        with suppress(PenstockError):
            made = self._plan(problem)
            result = evaluate(made, problem.profile, problem.cluster, within_memory=False)
            costs, peak = result.costs, result.proof.peak_bytes
            short = float(costs.over_bytes(peak).max(initial=0.0))
            if short > 0:
                yield Trial(change, short, f"it is still {show_bytes(short)} short")
                return
            fullest = int((peak / costs.memory_limit.clip(min=1.0)).argmax())
            limit = float(costs.memory_limit[fullest])
            room = show_bytes(float(peak[fullest])) + (f" of {show_bytes(limit)}" if limit < float("inf") else "")
            seconds = show_seconds(result.timeline.iteration_s)
            split = "" if costs.has_whole_rows else ", if rows could be split"
            yield Trial(change, 0.0, f"it fits (fullest device at {room}, iteration {seconds}{split})")


class _AutoTrials(_Trials):
    """The same with auto, which recomputes by itself."""

    def __init__(self, problem: Problem, profile_at: ProfileAt | None, search_space: SearchSpace) -> None:
        super().__init__(problem, "auto", False, profile_at)
        self._search_space = search_space

    def _is_quick(self, problem: Problem) -> bool:
        return is_quick_for_auto(problem)

    def _plan(self, problem: Problem) -> Plan:
        return auto(problem, search_space=self._search_space, work=0)

    def run(self) -> Iterator[Trial]:
        """Any schedule, fewer rows, more devices."""
        if self._search_space.schedule not in (None, "auto"):
            any_order = _AutoTrials(self._problem, self._profile_at, replace(self._search_space, schedule=None))
            yield from any_order._tried("--schedule auto", self._problem)
        yield from self._first_that_fits(self._with_fewer_rows(self._problem))
        yield from self.with_more_devices()
