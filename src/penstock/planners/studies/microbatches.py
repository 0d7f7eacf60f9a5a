"""How many micro-batches? A batch of so many rows can be cut into few large or many small ones.

Many fill the pipeline better and keep less in memory; few pay less often for what does not grow with the rows
(launches, latencies). So sizes that divide the batch are planned one by one, and the fastest that fits is taken. A size
whose proven lower bound is not under the best time found so far cannot win, and is not planned.

Cost: the planner's, for at most `most` sizes.
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

MOST_SIZES = 12
MOST_MICROBATCHES = 4096
"""Beyond this nothing is left to gain from a fuller pipeline."""
WHOLE_ROW = 1 - 1e-6


class Basis(StrEnum):
    """How the times for a number of rows are known."""

    COMPUTED = "computed"
    MEASURED = "measured"
    BETWEEN = "between measured"
    BEYOND = "beyond measured"
    PROPORTIONAL = "proportional"


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A number of rows that was considered, and what came of it."""

    micro_batch_size: int
    num_microbatches: int
    basis: Basis
    bound_s: float
    plan: Plan | None = None
    """None: the bound was enough to know that it cannot win."""
    outcome: Outcome | None = None

    @property
    def starves(self) -> bool:
        """Whether some device of a group would get less than one row, which nothing can run."""
        groups = [item.forward for item in self.plan.stages] if self.plan else []
        return any(replica.share * self.micro_batch_size < WHOLE_ROW for group in groups for replica in group)

    @property
    def rank(self) -> tuple[float, bool, float, int]:
        """Smaller is better; of two that are alike the one with fewer micro-batches."""
        over, seconds = self.outcome.rank if self.outcome else (math.inf, math.inf)
        return over, self.starves, seconds, self.num_microbatches


class MicrobatchChoice(msgspec.Struct, frozen=True, kw_only=True):
    """All sizes that were considered, the smallest first, and the best of them."""

    best: Size
    sizes: tuple[Size, ...]
    notes: tuple[str, ...]
    """What to know before relying on it."""


def choose_microbatches(
    profile: Profile,
    cluster: Cluster,
    global_batch_size: int,
    plan_one: Callable[[Problem], Plan],
    *,
    profile_at: Callable[[int], Profile] | None = None,
    most: int = MOST_SIZES,
) -> MicrobatchChoice:
    """The size of micro-batches with which a batch takes least time, of those that fit into memory.

    `profile_at`: the profile for a number of rows, where it is computed for each rather than read off `profile`'s
    lines.
    """
    sizes = []
    for micro_batch_size in row_sizes(global_batch_size, most):
        found = profile_at(micro_batch_size) if profile_at else profile
        bound = lower_bound(found, cluster, global_batch_size // micro_batch_size, micro_batch_size)
        basis = Basis.COMPUTED if profile_at else basis_of(profile, micro_batch_size)
        size = Size(
            micro_batch_size=micro_batch_size,
            num_microbatches=global_batch_size // micro_batch_size,
            basis=basis,
            bound_s=bound.seconds,
        )
        sizes.append((size, found))
    tried: list[Size] = []
    best: Size | None = None
    # The most promising first, so that the others need not be planned.
    for size, found in sorted(sizes, key=lambda item: (item[0].bound_s, item[0].num_microbatches)):
        if best is None or best.rank[:2] > (0.0, False) or size.bound_s < best.rank[2]:
            plan = plan_one(Problem(found, cluster, size.num_microbatches, micro_batch_size=size.micro_batch_size))
            size = msgspec.structs.replace(size, plan=plan, outcome=outcome_of(plan, found, cluster))  # noqa: PLW2901
            best = size if best is None else min(best, size, key=lambda item: item.rank)
        tried.append(size)
    assert best is not None, "a batch always divides into one micro-batch"
    tried.sort(key=lambda item: item.micro_batch_size)
    return MicrobatchChoice(best=best, sizes=tuple(tried), notes=tuple(_notes(profile, tried, best)))


def row_sizes(global_batch_size: int, most: int = MOST_SIZES) -> list[int]:
    """Divisors of the batch, the smallest first: all, or as many as wanted at about equal ratios.

    >>> row_sizes(12), row_sizes(2**10, 3)
    ([1, 2, 3, 4, 6, 12], [1, 32, 1024])
    """
    if not 1 <= global_batch_size <= MAX_MICRO_BATCH_SIZE:
        raise InputError(f"a batch must have 1 to {MAX_MICRO_BATCH_SIZE:,} rows, not {global_batch_size:,}")
    small = [count for count in range(1, math.isqrt(global_batch_size) + 1) if global_batch_size % count == 0]
    every = sorted({*small, *(global_batch_size // count for count in small)})
    every = [
        micro_batch_size for micro_batch_size in every if global_batch_size // micro_batch_size <= MOST_MICROBATCHES
    ]
    if len(every) <= most:
        return every
    low, high = math.log(every[0]), math.log(every[-1])
    wanted = [low + (high - low) * step / (most - 1) for step in range(most)]
    return sorted({_nearest(every, aim) for aim in wanted})


def _nearest(sizes: list[int], log_size: float) -> int:
    return min(sizes, key=lambda size: abs(math.log(size) - log_size))


def basis_of(profile: Profile, micro_batch_size: int) -> Basis:
    """How a profile knows the times for so many rows."""
    measured = measured_sizes(profile)
    if micro_batch_size in measured:
        return Basis.MEASURED
    if len(measured) == 1:
        return Basis.PROPORTIONAL
    return Basis.BETWEEN if measured[0] < micro_batch_size < measured[-1] else Basis.BEYOND


def measured_sizes(profile: Profile) -> list[int]:
    """The numbers of rows for which a profile has times."""
    return sorted({entry.micro_batch_size for entry in profile.units[0].times})


def _notes(profile: Profile, sizes: Sequence[Size], best: Size) -> list[str]:
    measured = measured_sizes(profile)
    notes = []
    if any(size.basis is Basis.PROPORTIONAL for size in sizes):
        notes.append(
            f"the profile has times for one size only ({measured[0]:,} rows), so they are taken as proportional to the "
            "rows: small micro-batches look as if they cost nothing extra. Measure a second size to know."
        )
    elif best.basis is Basis.BEYOND:
        notes.append(
            f"the profile has times for {measured[0]:,} to {measured[-1]:,} rows; those for {best.micro_batch_size:,} "
            "rows are extrapolated."
            " Measure that size to be sure."
        )
    if best.starves:
        notes.append(
            f"with {best.micro_batch_size:,} rows some device would get less than one row: no size avoids that here."
        )
    return notes
