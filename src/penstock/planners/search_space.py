"""What the planner auto may use."""

from dataclasses import dataclass

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import Plan
from penstock.schedules import find_schedule

SPLITTING = frozenset({"zb_h1", "zb_v", "auto"})
"""Schedules that may part the backward into input and weight gradients by themselves."""


WHOLE = 1e-6
"""Rows that are so near to a whole number are one."""


@dataclass(frozen=True)
class SearchSpace:
    """What the search may use; all of it unless switched off, as for engines that lack it."""

    replication: bool = True
    two_cuts: bool = True
    """Forward and backward cut at different places."""
    virtual_stages: bool = True
    """Several stages a device."""
    recomputation: bool = True
    split_backward: bool = True
    """Input and weight gradients as jobs of their own."""
    device_order: bool = True
    """Devices in any order; else each is first used after those before it in the cluster."""
    part_rows: bool = True
    """Groups whose members do not all get whole rows: their times are as if rows could be split."""
    schedule: str | None = None
    """Only this schedule; any order of the jobs if None."""

    def __post_init__(self) -> None:
        if self.schedule is not None:
            find_schedule(self.schedule)
            if not self.split_backward and self.schedule in SPLITTING - {"auto"}:
                raise InputError(
                    f"the schedule {self.schedule} parts the backward, which must stay whole here",
                    hint="Choose another schedule, such as 1f1b or auto_whole.",
                )

    @property
    def plan_schedule(self) -> str:
        """The schedule that the plans found have."""
        if self.schedule not in (None, "auto"):
            return str(self.schedule)
        return "auto" if self.split_backward else "auto_whole"

    def allow(self, plan: Plan, cluster: Cluster, *, recompute: bool = False) -> bool:
        """Whether a plan keeps to them; without recomputation, stages are as `recompute` says."""
        stages = plan.stages
        if not self.replication and any(item.num_replicas > 1 for item in stages):
            return False
        if not self.two_cuts and any(item.has_remote_backward for item in stages):
            return False
        if not self.recomputation and any(item.recompute != recompute for item in stages):
            return False
        if not self.virtual_stages and has_virtual_stages(plan):
            return False
        if not self.part_rows and not has_whole_rows(plan):
            return False
        places = [cluster.index[name] for name in plan.devices]
        return self.device_order or places == sorted(places)


def has_whole_rows(plan: Plan) -> bool:
    """Whether every member of every group gets whole rows."""
    parts = [replica.share * plan.micro_batch_size for stage in plan.stages for replica in stage.forward]
    return all(abs(part - round(part)) <= WHOLE for part in parts)


def has_virtual_stages(plan: Plan) -> bool:
    """Whether some device leaves the model in one direction and comes back to it later."""
    for side in ("forward", "backward"):
        seen: set[str] = set()
        before: set[str] = set()
        for stage in plan.stages:
            here = {replica.device for replica in getattr(stage, side)}
            if (here - before) & seen:
                return True
            seen |= here
            before = here
    return False
