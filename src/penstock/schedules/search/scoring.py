"""How good an order is: lowered and executed, without the proof.

The proof is left out since lowering is known to give programs that prove, and what is chosen is proved in the end.
"""

from typing import NamedTuple

from penstock.plan.pricing import Costs
from penstock.program import Program, durations, find_dependencies, find_jobs
from penstock.program.engine import execute
from penstock.program.lowering import lower
from penstock.program.proof import memory_use


class Score(NamedTuple):
    """Bytes over the devices' limits, and seconds: smaller is better, and what fits is better than what does not."""

    over_bytes: float
    seconds: float


def score_program(program: Program, costs: Costs) -> Score:
    """The score of one order."""
    lowered = lower(program, costs)
    jobs = find_jobs(lowered, costs)
    dependencies = find_dependencies(lowered, costs, jobs)
    run = execute(lowered, dependencies, costs, durations(lowered, costs, jobs.replica))
    peak = memory_use(lowered, costs, jobs.replica).peak(lowered, costs)
    return Score(float(costs.over_bytes(peak).max(initial=0.0)), run.seconds)
