"""Polishing: local search that moves passes on the critical path of an order.

List scheduling decides in the order of time and never revises; for few passes of unequal length that costs some
percent. Here, as in job-shop local search, a pass on the critical path that waits for its neighbour on the device is
moved ahead of it, or the neighbour behind it; the change is kept if the estimate (estimate.py) gets no worse by more
than a tolerance that falls to nothing, and no device exceeds its memory. The result is deterministic.

Cost: O(jobs and messages) for every change that is tried; so fewer are tried where there are many jobs.
"""

from collections.abc import Sequence

import numpy as np

from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.program.lowering import lower
from penstock.program.proof import memory_use
from penstock.schedules.search.estimate import Estimator

MAX_JOBS = 6_000
"""Programs with more jobs are not polished."""
EFFORT = 1_200_000
"""Jobs timed in all, over all changes that are tried."""
TRIES = 3_000
"""Changes that are tried from one order, at most."""
MAX_STARTS = 12
"""Orders to start from, at most."""
TOLERATED_JOBS = 0.5
"""How much worse a change may be at first, in average passes."""


def polished(
    programs: Sequence[Program], costs: Costs, estimator: Estimator, less: float = 0.0
) -> list[tuple[float, Program]]:
    """The given orders, most promising first, polished and sorted by their estimates.

    The effort limits how many are polished; a program that is too large is returned unchanged.

    Args:
        programs: The orders.
        costs: The priced plan.
        estimator: Its estimator.
        less: By how many bytes to stay below the memory limits.
    """
    size = programs[0].num_actions
    if size > MAX_JOBS:
        return [(estimator.seconds(programs[0]), programs[0])]
    tries = EFFORT // size
    starts: list[Program] = []
    for program in programs:
        if not any(program.same_actions(other) for other in starts):
            starts.append(program)
        if len(starts) == max(1, min(MAX_STARTS, tries // TRIES)):
            break
    found = [polish(program, costs, estimator, min(TRIES, tries), less) for program in starts]
    return sorted(((estimator.seconds(program), program) for program in found), key=lambda item: item[0])


def polish(program: Program, costs: Costs, estimator: Estimator, num_tries: int = TRIES, less: float = 0.0) -> Program:
    """The order, improved; the same one if nothing better was found."""
    lowered = lower(program, costs)
    peak = memory_use(lowered, costs).peak(lowered, costs)
    held = estimator.held(estimator.order_of(program))
    # What the order keeps, plus free memory: buffers and static memory stay as they are.
    room = held + np.maximum(costs.memory_limit - less - peak, 0.0)
    seconds = estimator.seconds(program)
    if not 0 < seconds < np.inf:
        return program
    mean = float(estimator.order_of(program).seconds_in_order.mean())
    return estimator.polished(program, room, num_tries, TOLERATED_JOBS * mean / seconds, seed=0)
