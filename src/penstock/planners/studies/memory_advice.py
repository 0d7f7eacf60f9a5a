"""Advice for a plan that does not fit into memory: changes of the problem, and whether a plan for them fits.

The changes are the schedule auto, recomputation, smaller micro-batches (and more of them), both of these if neither is
enough, and more devices like the last one. Each is planned with the same planner (auto without its search, because it
tries recomputation and all orders anyway), or with `balanced` if that planner takes long (quick_planners.py). If the
memory floor shows that no plan fits, the advice states this and tries only more devices. Cost: at most twenty quick
plans, or a few of auto's.
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
from penstock.planners.switches import plan_within
from penstock.profile import Profile
from penstock.program.proof import Proof
from penstock.simulate import evaluate
from penstock.units import show_bytes, show_seconds

ProfileAt = Callable[[int], Profile]
"""Computes the profile for a micro-batch size."""

MAX_DEVICES = 256
MAX_TIMES = 8
"""Limits of an enlarged cluster: its number of devices, and the factor by which it grows."""
MAX_FACTOR = 1_000
"""A micro-batch size without a divisor below this is divided into single rows at once."""


AUTO_WORK = 400
"""Layers times devices times micro-batches, summed over trials with auto: then no more of the same sort are made."""


@dataclass(frozen=True)
class Trial:
    """The result of planning a changed problem.

    Attributes:
        change: The change in words.
        short_bytes: Bytes that are missing on the device that lacks most; 0 if the plan fits.
        outcome: The result in words.
    """

    change: str
    short_bytes: float
    outcome: str

    @property
    def description(self) -> str:
        """One line of advice."""
        return f"with {self.change} {self.outcome}"


def advise_on_memory(
    problem: Problem, proof: Proof, *, profile_at: ProfileAt | None = None, search_space: SearchSpace | None = None
) -> list[str]:
    """Try changes of a problem whose plan does not fit into memory.

    Args:
        problem: The problem.
        proof: The proof of its plan, which found too little memory.
        profile_at: Computes the profile for a micro-batch size. If None, times and sizes are scaled from the problem's
            profile.
        search_space: The features that plans may use.

    Returns:
        Lines with each change and its result; none if planning would take long.
    """
    floor = memory_floor(problem)
    lines = list(floor.lines) if floor else []
    planner = proof.costs.plan.planner
    if planner == "auto":
        return lines + _run_trials(_AutoTrials(problem, profile_at, search_space or SearchSpace()), floor)
    is_substitute = not is_quick(planner, problem)
    if (floor and floor.least_devices is None) or (is_substitute and not is_quick("balanced", problem)):
        return lines
    trials = _Trials(problem, "balanced" if is_substitute else planner, is_substitute, profile_at, search_space)
    lines += _run_trials(trials, floor)
    if not floor:
        lines.append("not tried: --planner auto, which searches for plans that fit")
    return lines


def _run_trials(trials: "_Trials", floor: MemoryFloor | None) -> list[str]:
    """Run all trials that may help, and describe their results."""
    if floor and floor.least_devices is None:
        return []
    results = list(trials.with_more_devices(floor.least_devices) if floor and floor.least_devices else trials.run())
    lines = [trial.description for trial in results]
    if results and not any(trial.short_bytes == 0 for trial in results):
        lines.append("none of these changes is enough")
    return lines


class _Trials:
    def __init__(
        self,
        problem: Problem,
        planner: str,
        is_substitute: bool,
        profile_at: ProfileAt | None,
        search_space: SearchSpace | None = None,
    ) -> None:
        self._problem = problem
        self._search_space = search_space or SearchSpace()
        self._planner = planner
        self._profile_at = profile_at
        # Options that state a substitute planner, and the shape if another schedule would choose another one.
        self._fixed = [f"--planner {planner} --schedule {problem.schedule}"] if is_substitute else []
        self._in_shape = (
            [f"--shape {problem.shape} --chunks {problem.num_chunks}"] if problem.shape is not Shape.STRAIGHT else []
        )

    def _is_quick(self, problem: Problem) -> bool:
        return is_quick(self._planner, problem)

    def _plan(self, problem: Problem) -> Plan:
        return plan_within(find_planner(self._planner), problem, self._search_space)

    def run(self) -> Iterator[Trial]:
        """Try every change alone, then recomputation and smaller micro-batches together if neither is enough."""
        problem = self._problem
        if not problem.schedule.startswith("auto"):
            planner = [f"--planner {self._planner}"] if self._fixed else []
            words = " ".join([*planner, "--schedule auto", *self._in_shape])
            yield from self._try(words, replace(problem, schedule="auto"))
        recomputing = replace(problem, recompute=True)
        recompute_trials = [] if problem.recompute else list(self._try(self._describe("--recompute"), recomputing))
        yield from recompute_trials
        fewer_rows_trials = self._first_that_fits(self._with_fewer_rows(problem))
        yield from fewer_rows_trials
        if (
            not problem.recompute
            and fewer_rows_trials
            and all(trial.short_bytes > 0 for trial in (*recompute_trials, *fewer_rows_trials))
        ):
            yield from self._first_that_fits(self._with_fewer_rows(recomputing, "--recompute"))
        yield from self.with_more_devices()

    def _describe(self, *changes: str) -> str:
        """Join changes to one text: command-line options first, then the others."""
        options = [*self._fixed, *(item for item in changes if item.startswith("--"))]
        return " and ".join(filter(None, (" ".join(options), *(item for item in changes if item not in options))))

    def _with_fewer_rows(self, problem: Problem, *ahead: str) -> Iterator[Trial]:
        """Try the same global batch in more and more micro-batches, down to one row each."""
        micro_batch_size, count = problem.rows_per_microbatch, problem.num_microbatches
        while micro_batch_size > 1:
            factor = next(
                (number for number in range(2, MAX_FACTOR) if micro_batch_size % number == 0), micro_batch_size
            )
            micro_batch_size, count = micro_batch_size // factor, count * factor
            with suppress(PenstockError):  # more micro-batches than the limit
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
                yield from self._try(self._describe(*ahead, words), changed)

    def _first_that_fits(self, trials: Iterator[Trial]) -> list[Trial]:
        """The first trial that fits, or else the last."""
        last: list[Trial] = []
        for trial in trials:
            last = [trial]
            if trial.short_bytes == 0:
                break
        return last

    def with_more_devices(self, least: int = 1) -> Iterator[Trial]:
        """Try at least `least` devices, doubled until the plan fits, and then bisect."""
        before = self._problem.cluster.num_devices
        low, high = (least - 1, least) if least > before else (before, 2 * before)
        most = min(MAX_DEVICES, MAX_TIMES * before)
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
        words = f"{added} more device{'s' if added > 1 else ''} like {like} ({count} in total)"
        return next(
            self._try(self._describe(words), replace(self._problem, cluster=cluster, pipeline_depth=None)), None
        )

    def _try(self, change: str, problem: Problem) -> Iterator[Trial]:
        """Yield the trial, or nothing if it would take long or cannot be planned."""
        if not self._is_quick(problem):
            return
        with suppress(PenstockError):
            plan = self._plan(problem)
            result = evaluate(plan, problem.profile, problem.cluster, within_memory=False)
            costs, peak = result.costs, result.proof.peak_bytes
            short = float(costs.over_bytes(peak).max(initial=0.0))
            if short > 0:
                yield Trial(change, short, f"it is still {show_bytes(short)} short")
                return
            fullest = int((peak / costs.memory_limit.clip(min=1.0)).argmax())
            limit = float(costs.memory_limit[fullest])
            room = show_bytes(float(peak[fullest])) + (f" of {show_bytes(limit)}" if limit < float("inf") else "")
            seconds = show_seconds(result.timeline.iteration_s)
            split = "" if costs.has_whole_rows else ", assuming divisible rows"
            yield Trial(change, 0.0, f"it fits (fullest device at {room}, iteration {seconds}{split})")


class _AutoTrials(_Trials):
    """Trials with auto, which decides about recomputation itself."""

    def __init__(self, problem: Problem, profile_at: ProfileAt | None, search_space: SearchSpace) -> None:
        super().__init__(problem, "auto", False, profile_at, search_space)
        self._work_left = AUTO_WORK

    def _is_quick(self, problem: Problem) -> bool:
        return is_quick_for_auto(problem) and self._work_left > 0

    def _plan(self, problem: Problem) -> Plan:
        self._work_left -= problem.profile.num_units * problem.cluster.num_devices * problem.num_microbatches
        return auto(problem, search_space=self._search_space, work=0)

    def run(self) -> Iterator[Trial]:
        """Try any schedule, smaller micro-batches, and more devices."""
        if self._search_space.schedule not in (None, "auto"):
            any_order = _AutoTrials(self._problem, self._profile_at, replace(self._search_space, schedule=None))
            yield from any_order._try("--schedule auto", self._problem)
        yield from self._first_that_fits(self._with_fewer_rows(self._problem))
        self._work_left = AUTO_WORK
        yield from self.with_more_devices()
