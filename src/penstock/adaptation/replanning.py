"""Planning again for a cluster whose speeds have changed."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from penstock.cluster import Cluster
from penstock.errors import PenstockError
from penstock.plan import Origin, Plan
from penstock.planners import Problem, SearchSpace
from penstock.planners.auto import WORK, search_plans
from penstock.profile import Profile
from penstock.simulate import Evaluation, evaluate

Replanner = Callable[[Cluster, Sequence[Plan]], Evaluation]


def make_replanner(
    profile: Profile,
    plan: Plan,
    *,
    work: int = WORK,
    search_space: SearchSpace = SearchSpace(),  # noqa: B008 - frozen
) -> Replanner:
    """Return a function that plans for a cluster: the best of a search and of the plans that it is given.

    Args:
        profile: The profile of the model.
        plan: The plan whose micro-batches are kept.
        work: Number of plans to evaluate.
        search_space: Features that plans may use.
    """

    def replan(cluster: Cluster, known: Sequence[Plan]) -> Evaluation:
        problem = Problem(
            profile,
            cluster,
            plan.num_microbatches,
            plan.micro_batch_size,
            profile_source=plan.profile.source,
            cluster_source=plan.cluster.source,
        )
        solution = search_plans(problem, search_space=search_space, work=work)
        best = evaluate(solution.plan, profile, cluster)
        origin = Origin(name=cluster.name, digest=cluster.digest, source=plan.cluster.source)
        for other in known:
            with suppress(PenstockError):  # a device of that plan is gone, or its memory is smaller now
                found = evaluate(msgspec.structs.replace(other, cluster=origin), profile, cluster)
                if found.timeline.iteration_s < best.timeline.iteration_s:
                    best = found
        return best

    return replan
