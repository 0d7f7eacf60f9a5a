"""Plans of the baseline planners for the problem of a report, one table row each."""

from contextlib import suppress
from dataclasses import replace

import msgspec

from penstock.errors import PenstockError
from penstock.plan import Shape
from penstock.plan.pricing import Costs
from penstock.planners import PLANNERS, Outcome, Problem, outcome_of
from penstock.planners.studies import ALTERNATIVE_PLANNERS, is_quick
from penstock.profile import Profile


class Baseline(msgspec.Struct, frozen=True):
    """A baseline planner, the schedule that it plans for, and the outcome of its plan."""

    planner: str
    schedule: str
    outcome: Outcome


def evaluate_baselines(costs: Costs, profile: Profile) -> list[Baseline]:
    """Plan and simulate with every planner that is quick for this problem.

    Args:
        costs: The priced plan of the report, with the cluster, the micro-batch size and the number of micro-batches.
        profile: The profile of the model.

    Returns:
        The baselines in the order of `ALTERNATIVE_PLANNERS`, including plans that do not fit into memory. Planners that
        fail on this problem are left out.
    """
    problem = Problem(profile, costs.cluster, costs.plan.num_microbatches, micro_batch_size=costs.plan.micro_batch_size)
    baselines = []
    for name in ALTERNATIVE_PLANNERS:
        planner = PLANNERS[name]
        own_problem = replace(problem, schedule=planner.schedule, shape=Shape.STRAIGHT, num_chunks=1)
        if is_quick(name, own_problem):
            with suppress(PenstockError):  # such as a device too slow to take any rows
                outcome = outcome_of(planner.plan(own_problem), profile, costs.cluster)
                baselines.append(Baseline(name, planner.schedule, outcome))
    return baselines
