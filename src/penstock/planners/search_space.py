"""The search space: the features that plans may use."""

from dataclasses import dataclass

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import SHARE_TOLERANCE, Grid, Plan, Shape, find_grid
from penstock.schedules import find_schedule

SPLITTING = frozenset({"zb_h1", "zb_v", "v_half", "v_min", "auto"})
"""Schedules that may split the backward into input and weight gradients on their own."""

ROW_TOLERANCE = 1e-6
"""A number of rows within this distance of an integer counts as that integer."""


@dataclass(frozen=True)
class SearchSpace:
    """The features that plans may use. Disable those that the training engine does not support.

    Attributes:
        replication: Stages on several devices.
        two_cuts: Different cuts for forward and backward, that is remote backwards.
        virtual_stages: Several stages per device.
        recomputation: Recomputing stages.
        sharded_optimizer: Replicas that share the optimizer state of their stage.
        split_backward: Input and weight gradients as separate actions.
        device_order: Devices in any order. If False, stages use devices in the order of the cluster.
        part_rows: Groups whose replicas get fractional rows; their times are as if rows could be split.
        unequal_replicas: Stages with different numbers of replicas.
        unequal_shares: Replicas with different shares of the rows.
        part_recomputation: Recomputation of some stages but not of others.
        part_rounds: Loops in which the number of micro-batches is not a multiple of the number of devices.
        maps: The only maps of stages to devices; any map if None.
        schedule: The only schedule to use; any order of the actions if None.

    Raises:
        InputError: If the schedule does not exist, or splits the backward although `split_backward` is False.

    Example:
        >>> SearchSpace(split_backward=False).plan_schedule
        'auto_fused'
    """

    replication: bool = True
    two_cuts: bool = True
    virtual_stages: bool = True
    recomputation: bool = True
    sharded_optimizer: bool = True
    split_backward: bool = True
    device_order: bool = True
    part_rows: bool = True
    unequal_replicas: bool = True
    unequal_shares: bool = True
    part_recomputation: bool = True
    part_rounds: bool = True
    maps: frozenset[Shape] | None = None
    schedule: str | None = None

    def __post_init__(self) -> None:
        if self.schedule is not None:
            find_schedule(self.schedule)
            if not self.split_backward and self.schedule in SPLITTING - {"auto"}:
                raise InputError(
                    f"schedule {self.schedule} splits the backward, and the search space excludes split backwards",
                    hint="Use a schedule with fused backwards, such as 1f1b or auto_fused.",
                )

    @property
    def plan_schedule(self) -> str:
        """The schedule of the plans in this search space."""
        if self.schedule not in (None, "auto"):
            return str(self.schedule)
        return "auto" if self.split_backward else "auto_fused"

    def allow(self, plan: Plan, cluster: Cluster, *, recompute: bool = False) -> bool:
        """Whether a plan is in the search space.

        Without `recomputation`, every stage must recompute exactly if `recompute` is True.
        """
        return self.excluded_feature(plan, cluster, recompute=recompute) is None

    def excluded_feature(self, plan: Plan, cluster: Cluster, *, recompute: bool = False) -> str | None:
        """The first field of this search space that a plan is not within; None if there is none."""
        stages = plan.stages
        if not self.replication and any(item.num_replicas > 1 for item in stages):
            return "replication"
        if not self.two_cuts and any(item.has_remote_backward for item in stages):
            return "two_cuts"
        if not self.recomputation and any(item.recompute != recompute for item in stages):
            return "recomputation"
        if not self.sharded_optimizer and any(item.sharded_optimizer for item in stages):
            return "sharded_optimizer"
        if not self.virtual_stages and has_virtual_stages(plan):
            return "virtual_stages"
        if not self.part_rows and not has_whole_rows(plan):
            return "part_rows"
        if not self.part_recomputation and len({item.recompute for item in stages}) > 1:
            return "part_recomputation"
        if not self.unequal_replicas and len({item.num_replicas for item in stages}) > 1:
            return "unequal_replicas"
        if not self.unequal_shares and not has_equal_shares(plan):
            return "unequal_shares"
        if (self.maps is not None or not self.part_rounds or not self.unequal_replicas) and not self._allow_map(plan):
            return "maps" if self.part_rounds else "part_rounds"
        devices = [cluster.index[name] for name in plan.devices]
        return None if self.device_order or devices == sorted(devices) else "device_order"

    def _allow_map(self, plan: Plan) -> bool:
        try:
            grid = find_grid(plan)
        except ValueError:
            return False
        if self.maps is not None and grid.shape not in self.maps:
            return False
        return self.part_rounds or _has_whole_rounds(grid, plan.num_microbatches)


def _has_whole_rounds(grid: Grid, num_microbatches: int) -> bool:
    return grid.num_chunks == 1 or num_microbatches % grid.num_ranks == 0


def has_equal_shares(plan: Plan) -> bool:
    """Whether all replicas of a stage get the same share of the rows."""
    shares = [[replica.share for replica in stage.forward] for stage in plan.stages]
    return all(max(group) - min(group) <= SHARE_TOLERANCE for group in shares)


def has_whole_rows(plan: Plan) -> bool:
    """Whether every replica of every group gets an integer number of rows."""
    rows = [replica.share * plan.micro_batch_size for stage in plan.stages for replica in stage.forward]
    return all(abs(count - round(count)) <= ROW_TOLERANCE for count in rows)


def has_virtual_stages(plan: Plan) -> bool:
    """Whether some device has several separate runs of layers in one direction."""
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
