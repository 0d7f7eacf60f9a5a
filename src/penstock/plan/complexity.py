"""How intricate a plan is: what makes it lose more to errors of its predicted times."""

from collections import Counter
from typing import NamedTuple

from penstock.plan.types import Plan


class Complexity(NamedTuple):
    """Counts of a plan, the most important first, so that they sort plans from simple to intricate.

    Attributes:
        num_remote: Stages with a remote backward.
        num_extra: Separate runs of layers beyond the first one, in one direction, on the device with most of them.
    """

    num_remote: int
    num_extra: int


def complexity_of(plan: Plan) -> Complexity:
    """Count what makes a plan intricate.

    Args:
        plan: The plan.

    >>> from penstock.plan.types import Origin, Stage, on
    >>> stages = tuple(
    ...     Stage(start=number, stop=number + 1, forward=on(device), backward=on(device))
    ...     for number, device in enumerate(("d0", "d1", "d1", "d0"))
    ... )
    >>> origin = Origin(name="", digest="")
    >>> named = {"planner": "", "schedule": "", "profile": origin, "cluster": origin}
    >>> plan = Plan(num_microbatches=4, micro_batch_size=1, stages=stages, **named)
    >>> complexity_of(plan)
    Complexity(num_remote=0, num_extra=1)
    """
    most = 1
    for side in ("forward", "backward"):
        runs: Counter[str] = Counter()
        before: set[str] = set()
        for stage in plan.stages:
            here = {replica.device for replica in getattr(stage, side)}
            runs.update(here - before)
            before = here
        most = max(most, *runs.values())
    return Complexity(sum(stage.has_remote_backward for stage in plan.stages), most - 1)
