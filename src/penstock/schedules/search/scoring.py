"""The score of an order: lowered and executed, without the proof.

Lowered programs pass the proof, and the chosen program is proved in the end.
"""

from typing import NamedTuple

from penstock.plan.pricing import Costs
from penstock.program import Program, durations, find_dependencies, find_jobs
from penstock.program.engine import execute
from penstock.program.lowering import lower
from penstock.program.proof import memory_use


class Score(NamedTuple):
    """Bytes over memory limits, then seconds: smaller is better, and fitting comes first."""

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
