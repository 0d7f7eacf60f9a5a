"""How good a plan is, quickly: for searches that look at thousands.

A plan is priced, its work ordered by a few promising schedules, lowered and executed; the proof is left out, since
lowering is known to give programs that prove, and whatever a search returns is proved in the end.
"""

from typing import NamedTuple

from penstock.cluster.types import Cluster
from penstock.plan.costs import Costs
from penstock.plan.pricing import price
from penstock.plan.types import Plan
from penstock.profile.types import Profile
from penstock.program.execution import execute
from penstock.program.jobs import find_jobs
from penstock.program.lowering import lower
from penstock.program.memory import memory_use
from penstock.program.types import Program
from penstock.program.wiring import durations, wire
from penstock.schedules.auto import rooms
from penstock.schedules.clock import with_split
from penstock.schedules.greedy import Greedy, Rules
from penstock.schedules.one_f_one_b import one_f_one_b


class Score(NamedTuple):
    """Bytes over the devices' limits, and seconds: smaller is better, and what fits is better than what does not."""

    over_bytes: float
    seconds: float


def score_program(program: Program, costs: Costs) -> Score:
    """The score of one order."""
    lowered = lower(program, costs)
    jobs = find_jobs(lowered, costs)
    wiring = wire(lowered, costs, jobs)
    run = execute(lowered, wiring, costs, durations(lowered, costs, jobs.place))
    peak = memory_use(lowered, costs, jobs.place).peak(lowered, costs)
    return Score(float(costs.over_bytes(peak).max(initial=0.0)), run.seconds)


def score_plan(plan: Plan, profile: Profile, cluster: Cluster, beat: Score | None = None) -> Score:
    """The best score over a few orders: list scheduling with usual, with more and with twice that memory.

    A plan that is slower than `beat` by the scheduler's own count, which knows no queues on links and no reductions,
    is not looked at any closer; its score is then only known to be no better.
    """
    costs = price(plan, profile, cluster)
    greedy = Greedy(costs)
    found = [greedy.timed(Rules(True, room)) for room in rooms(costs, greedy.kept)[:3]]
    timed = sorted((item for item in found if item is not None), key=lambda item: item[1])
    best: Score | None = None
    for program, seconds in timed:
        if beat is not None and beat.over_bytes == 0 and seconds >= beat.seconds:
            return best or Score(0.0, seconds)
        score = score_program(program, costs)
        best = score if best is None or score < best else best
        if best.over_bytes == 0 and timed[0][1] == seconds:
            break  # the fastest fits: the others use less memory, and are not faster
    return best or score_program(one_f_one_b(with_split(costs, False)), costs)
