"""The score of an order: lowered and executed, without the proof.

Lowered programs pass the proof, and the chosen program is proved in the end.
"""

import math
from typing import NamedTuple

from penstock.plan.pricing import Costs
from penstock.program import Program, durations, find_dependencies, find_jobs
from penstock.program.engine import execute
from penstock.program.lowering import lower
from penstock.program.proof import meets_restrictions, memory_use


class Score(NamedTuple):
    """Bytes over memory limits, then seconds: smaller is better, and fitting comes first.

    Both are infinite for an order that training refuses.
    """

    over_bytes: float
    seconds: float

    @property
    def is_refused(self) -> bool:
        """Whether training refuses the order."""
        return math.isinf(self.over_bytes)


REFUSED = Score(math.inf, math.inf)
"""The score of an order that training refuses."""


def score_program(program: Program, costs: Costs) -> Score:
    """The score of one order."""
    lowered = lower(program, costs)
    jobs = find_jobs(lowered, costs)
    dependencies = find_dependencies(lowered, costs, jobs)
    if not meets_restrictions(lowered, costs, dependencies):
        return REFUSED
    run = execute(lowered, dependencies, costs, durations(lowered, costs, jobs.replica))
    peak = memory_use(lowered, costs, jobs.replica).peak(lowered, costs)
    return Score(float(costs.over_bytes(peak).max(initial=0.0)), run.seconds)
