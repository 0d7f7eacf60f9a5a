"""What other planners make of the same problem: a row each for the table of a report."""

from contextlib import suppress
from dataclasses import replace

import msgspec

from penstock.errors import PenstockError
from penstock.plan import Shape
from penstock.plan.pricing import Costs
from penstock.planners import PLANNERS, Outcome, Problem, outcome_of
from penstock.planners.studies import TRIED, is_quick
from penstock.profile import Profile


class Baseline(msgspec.Struct, frozen=True):
    """A planner with the schedule that it plans for, and what comes of it."""

    planner: str
    schedule: str
    outcome: Outcome


def baselines(costs: Costs, profile: Profile) -> list[Baseline]:
    """Those that answer quickly, whether their plans fit into memory or not; in the order of `TRIED`."""
    problem = Problem(profile, costs.cluster, costs.plan.num_microbatches, micro_batch_size=costs.plan.micro_batch_size)
    found = []
    for name in TRIED:
        planner = PLANNERS[name]
        asked = replace(problem, schedule=planner.schedule, shape=Shape.STRAIGHT, num_chunks=1)
        if is_quick(name, asked):
            with suppress(PenstockError):  # such as a device too slow to take any rows
                outcome = outcome_of(planner.plan(asked), profile, costs.cluster)
                found.append(Baseline(name, planner.schedule, outcome))
    return found
