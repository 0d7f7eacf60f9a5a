"""Micro-batch sizes: the best division of a global batch into micro-batches.

Many small micro-batches fill the pipeline better and keep less in memory; few large ones pay less often for costs that
do not grow with the rows (launches, latencies). So the study plans with sizes that divide the batch, and takes the
fastest that fits into memory. It skips a size whose lower bound is not under the best iteration time so far.

Cost: one run of the planner for each of at most `most` sizes.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import Plan
from penstock.planners.bounds import lower_bound
from penstock.planners.outcome import Outcome, outcome_of
from penstock.planners.problem import Problem
from penstock.profile import MAX_MICRO_BATCH_SIZE, Profile

MAX_SIZES = 12
MAX_MICROBATCHES = 4096
"""With more micro-batches, a fuller pipeline gains nothing noticeable."""
WHOLE_ROW = 1 - 1e-6


class Basis(StrEnum):
    """The origin of the times for a micro-batch size."""

    COMPUTED = "computed"
    MEASURED = "measured"
    BETWEEN = "between measured"
    BEYOND = "beyond measured"
    PROPORTIONAL = "proportional"


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A micro-batch size, with its plan and outcome."""

    micro_batch_size: int
    num_microbatches: int
    basis: Basis
    bound_s: float
    plan: Plan | None = None
    """None if the lower bound excludes this size."""
    outcome: Outcome | None = None

    @property
    def has_starved_replica(self) -> bool:
        """Whether some replica gets less than one row, which cannot run."""
        groups = [item.forward for item in self.plan.stages] if self.plan else []
        return any(replica.share * self.micro_batch_size < WHOLE_ROW for group in groups for replica in group)

    @property
    def rank(self) -> tuple[float, bool, float, int]:
        """Sort key, the best first; ties go to fewer micro-batches."""
        over, seconds = self.outcome.rank if self.outcome else (math.inf, math.inf)
        return over, self.has_starved_replica, seconds, self.num_microbatches


class MicrobatchChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a study, the smallest first, and the best of them."""

    best: Size
    sizes: tuple[Size, ...]
    notes: tuple[str, ...]
    """Caveats about the result."""


def choose_microbatches(
    profile: Profile,
    cluster: Cluster,
    global_batch_size: int,
    plan_one: Callable[[Problem], Plan],
    *,
    profile_at: Callable[[int], Profile] | None = None,
    most: int = MAX_SIZES,
) -> MicrobatchChoice:
    """Choose the micro-batch size with the least iteration time, of those whose plans fit into memory.

    Args:
        profile: The model's profile.
        cluster: The devices and links.
        global_batch_size: Rows of an iteration.
        plan_one: Makes a plan for a problem.
        profile_at: Computes the profile for a micro-batch size. If None, times are interpolated from `profile`.
        most: How many sizes to consider.

    Returns:
        All sizes, and the best one.

    Raises:
        InputError: If the global batch size is out of range.
    """
    sizes = []
    for micro_batch_size in candidate_sizes(global_batch_size, most):
        size_profile = profile_at(micro_batch_size) if profile_at else profile
        bound = lower_bound(size_profile, cluster, global_batch_size // micro_batch_size, micro_batch_size)
        basis = Basis.COMPUTED if profile_at else basis_of(profile, micro_batch_size)
        size = Size(
            micro_batch_size=micro_batch_size,
            num_microbatches=global_batch_size // micro_batch_size,
            basis=basis,
            bound_s=bound.seconds,
        )
        sizes.append((size, size_profile))
    tried: list[Size] = []
    best: Size | None = None
    # The most promising sizes first, so that their times exclude others.
    for size, size_profile in sorted(sizes, key=lambda item: (item[0].bound_s, item[0].num_microbatches)):
        if best is None or best.rank[:2] > (0.0, False) or size.bound_s < best.rank[2]:
            problem = Problem(size_profile, cluster, size.num_microbatches, micro_batch_size=size.micro_batch_size)
            plan = plan_one(problem)
            size = msgspec.structs.replace(size, plan=plan, outcome=outcome_of(plan, size_profile, cluster))  # noqa: PLW2901
            best = size if best is None else min(best, size, key=lambda item: item.rank)
        tried.append(size)
    assert best is not None, "a batch always divides into one micro-batch"
    tried.sort(key=lambda item: item.micro_batch_size)
    return MicrobatchChoice(best=best, sizes=tuple(tried), notes=tuple(_notes(profile, tried, best)))


def candidate_sizes(global_batch_size: int, most: int = MAX_SIZES) -> list[int]:
    """Divisors of the batch in rising order: all, or `most` of them at about equal ratios.

    >>> candidate_sizes(12), candidate_sizes(2**10, 3)
    ([1, 2, 3, 4, 6, 12], [1, 32, 1024])
    """
    if not 1 <= global_batch_size <= MAX_MICRO_BATCH_SIZE:
        raise InputError(
            f"global batch size ({global_batch_size:,}) must be at least 1 and at most {MAX_MICRO_BATCH_SIZE:,}"
        )
    small = [count for count in range(1, math.isqrt(global_batch_size) + 1) if global_batch_size % count == 0]
    every = sorted({*small, *(global_batch_size // count for count in small)})
    every = [
        micro_batch_size for micro_batch_size in every if global_batch_size // micro_batch_size <= MAX_MICROBATCHES
    ]
    if len(every) <= most:
        return every
    low, high = math.log(every[0]), math.log(every[-1])
    targets = [low + (high - low) * step / (most - 1) for step in range(most)]
    return sorted({_nearest(every, aim) for aim in targets})


def _nearest(sizes: list[int], log_size: float) -> int:
    return min(sizes, key=lambda size: abs(math.log(size) - log_size))


def basis_of(profile: Profile, micro_batch_size: int) -> Basis:
    """The origin of a profile's times for a micro-batch size."""
    measured = measured_sizes(profile)
    if micro_batch_size in measured:
        return Basis.MEASURED
    if len(measured) == 1:
        return Basis.PROPORTIONAL
    return Basis.BETWEEN if measured[0] < micro_batch_size < measured[-1] else Basis.BEYOND


def measured_sizes(profile: Profile) -> list[int]:
    """The micro-batch sizes for which a profile has times."""
    return sorted({entry.micro_batch_size for entry in profile.units[0].times})


def _notes(profile: Profile, sizes: Sequence[Size], best: Size) -> list[str]:
    measured = measured_sizes(profile)
    notes = []
    if any(size.basis is Basis.PROPORTIONAL for size in sizes):
        notes.append(
            f"the profile has times for one micro-batch size only ({measured[0]:,} rows), so times are assumed to be "
            "proportional to rows, without fixed costs per micro-batch. Measure a second size to include them."
        )
    elif best.basis is Basis.BEYOND:
        notes.append(
            f"the profile has times for {measured[0]:,} to {measured[-1]:,} rows; those for {best.micro_batch_size:,} "
            "rows are extrapolated. Measure that size to be sure."
        )
    if best.has_starved_replica:
        notes.append(
            f"with {best.micro_batch_size:,} rows per micro-batch some device gets less than one row; no size avoids "
            "that here."
        )
    return notes
