"""Where the replicas of a plan run, as far as a program and its plan tell it without prices.

`Costs` has the same names, so that tables of jobs are made from either.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from penstock.arrays import Bools, Ints
from penstock.plan.pricing import overlaps, replicas_by_device
from penstock.program.actions import NONE
from penstock.program.types import Program


class Replicas(Protocol):
    """The replicas of a plan by device and stage: `Costs` or `Placement`."""

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""

    @property
    def num_microbatches(self) -> int:
        """The number of micro-batches of an iteration."""

    @property
    def recompute(self) -> Bools:
        """Over stages: whether the stage recomputes."""

    @property
    def forward_replicas(self) -> Ints:
        """Over pairs (device, stage), device by device: the replica whose forward the device runs, or NONE."""

    @property
    def backward_replicas(self) -> Ints:
        """The same for backwards."""


@dataclass(frozen=True, eq=False)
class Placement:
    """The replicas of a plan on the devices of a program, numbered as in `Costs`.

    A device that the program does not name is NONE.
    """

    num_devices: int
    num_microbatches: int
    recompute: Bools
    replica_stage: Ints
    forward_device: Ints
    backward_device: Ints
    local_forward: Ints
    """Pairs (earlier replica, later replica) whose activations stay on one device."""
    local_backward: Ints
    """Pairs (later replica, earlier replica) whose gradients stay on one device."""

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return len(self.replica_stage)

    @cached_property
    def forward_replicas(self) -> Ints:
        """Over pairs (device, stage), device by device: the replica whose forward the device runs, or NONE."""
        return replicas_by_device(self.forward_device, self.replica_stage, self.num_devices, len(self.recompute))

    @cached_property
    def backward_replicas(self) -> Ints:
        """The same for backwards."""
        return replicas_by_device(self.backward_device, self.replica_stage, self.num_devices, len(self.recompute))


def find_placement(program: Program) -> Placement:
    """The placement of a program's plan."""
    plan = program.plan
    index = {name: number for number, name in enumerate(program.devices)}
    offsets = np.concatenate([[0], np.cumsum([stage.num_replicas for stage in plan.stages])])
    forward, backward = (
        np.array([index.get(replica.device, NONE) for group in groups for replica in group], dtype=np.int64)
        for groups in ([stage.forward for stage in plan.stages], [stage.backward for stage in plan.stages])
    )
    pairs = np.array(
        [
            (offsets[number] + overlap.left, offsets[number + 1] + overlap.right)
            for number, (stage, following) in enumerate(zip(plan.stages[:-1], plan.stages[1:], strict=True))
            for overlap in overlaps(*([replica.share for replica in group.forward] for group in (stage, following)))
        ],
        dtype=np.int64,
    ).reshape(-1, 2)
    return Placement(
        num_devices=len(program.devices),
        num_microbatches=plan.num_microbatches,
        recompute=np.array([stage.recompute for stage in plan.stages]),
        replica_stage=np.repeat(np.arange(plan.num_stages), np.diff(offsets)),
        forward_device=forward,
        backward_device=backward,
        local_forward=pairs[forward[pairs[:, 0]] == forward[pairs[:, 1]]],
        local_backward=pairs[backward[pairs[:, 0]] == backward[pairs[:, 1]]][:, ::-1],
    )
