"""`Plan`: the devices that run the forward and the backward of every stage. Also the file format."""

import math
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from penstock import io
from penstock.plan.message_model import MessageModel
from penstock.profile import Profile, Rows

FORMAT = "penstock.plan/3"

MAX_MICROBATCHES = 2**16
SHARE_TOLERANCE = 1e-9
"""Shares add up to 1 within this tolerance, so every share must be larger."""


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device of a stage's group.

    Attributes:
        device: The name of the device.
        share: The share of every micro-batch's rows that it takes.
    """

    device: str
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0


Group = tuple[Replica, ...]


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run of layers with one forward group and one backward group.

    Attributes:
        start: Index of the first layer.
        stop: Index after the last layer.
        forward: The replicas that run the forward.
        backward: The replicas that run the backward, with the same shares in the same order.
        recompute: Whether to keep only the stage's input and run the forward again before the backward.
        sharded_optimizer: Whether each replica has the optimizer state of its share of the parameters only: the
            replicas reduce-scatter the gradients, step their share, and all-gather the parameters.
    """

    start: Annotated[int, msgspec.Meta(ge=0)]
    stop: Annotated[int, msgspec.Meta(ge=1)]
    forward: Group
    backward: Group
    recompute: bool = False
    sharded_optimizer: bool = False

    def __post_init__(self) -> None:
        if self.start >= self.stop:
            raise ValueError(f"stage is empty: start {self.start}, stop {self.stop}")
        for side, group in (("forward", self.forward), ("backward", self.backward)):
            if not group:
                raise ValueError(f"the {side} group is empty")
            if len({replica.device for replica in group}) != len(group):
                raise ValueError(f"the {side} group has a duplicate device")
            if not all(replica.share > SHARE_TOLERANCE for replica in group):
                raise ValueError(f"every share of the {side} group must be above {SHARE_TOLERANCE}")
            total = math.fsum(replica.share for replica in group)
            if not abs(total - 1) <= SHARE_TOLERANCE:
                raise ValueError(f"the shares of the {side} group add up to {total:.6g}, not to 1")
        if [replica.share for replica in self.forward] != [replica.share for replica in self.backward]:
            raise ValueError("the forward and the backward group must have the same shares, in the same order")
        if self.sharded_optimizer and not self.can_shard_optimizer:
            raise ValueError(
                "sharded_optimizer needs several replicas, each with its forward and its backward on one device"
            )

    @property
    def has_remote_backward(self) -> bool:
        """Whether some replica's backward runs on another device than its forward."""
        return self.forward != self.backward

    @property
    def can_shard_optimizer(self) -> bool:
        """Whether the replicas can share the optimizer state: there are several, and no backward is remote."""
        return self.num_replicas > 1 and not self.has_remote_backward

    @property
    def num_replicas(self) -> int:
        """The number of devices that share the forward, and the backward."""
        return len(self.forward)


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The profile or the cluster that a plan was made for: name, digest of the contents, and source."""

    name: str
    digest: str
    source: str = ""


class PlannedLayer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A layer of the profile that a plan was made for: what a model must agree with to be trained by the plan.

    Attributes:
        name: The name of the layer.
        parameter_bytes: Bytes of its parameters.
    """

    name: str
    parameter_bytes: Annotated[int, msgspec.Meta(ge=0)]


def planned_layers(profile: Profile) -> tuple[PlannedLayer, ...]:
    """The layers of a profile, as its plans record them."""
    return tuple(PlannedLayer(unit.name, unit.parameter_bytes) for unit in profile.units)


class DeviceOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The compute actions of one device in order, packed (`penstock.program.with_order`)."""

    device: str
    actions: str


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The order of a plan's compute actions, as the planner found it."""

    plan: str
    """Digest of the stages, the number of micro-batches and the schedule that the order was made for."""
    devices: tuple[DeviceOrder, ...]


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The stages in model order, the number of micro-batches, and the order of the compute actions."""

    format: str = FORMAT
    planner: str
    schedule: str
    split_backward: bool = False
    """Whether to split every backward into I and W under any schedule."""
    num_microbatches: Annotated[int, msgspec.Meta(ge=1, le=MAX_MICROBATCHES)]
    micro_batch_size: Rows
    """Rows per micro-batch."""
    profile: Origin
    cluster: Origin
    stages: tuple[Stage, ...]
    layers: tuple[PlannedLayer, ...] = ()
    """The layers of the profile; empty for a plan that does not record them."""
    kinds: tuple[str, ...] = ()
    """The kinds of the cluster's devices; empty for a plan that does not record them."""
    order: Order | None = None
    """The order of the compute actions; None: the schedule computes it."""
    messages: MessageModel | None = None
    """How the engine that the plan is for moves messages; None: as Penstock does."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("a plan needs at least one stage")
        expected = 0
        for number, stage in enumerate(self.stages):
            if stage.start != expected:
                raise ValueError(f"stage {number} starts at layer {stage.start}, not at {expected}")
            expected = stage.stop
        if self.layers and len(self.layers) != expected:
            raise ValueError(f"layers has {len(self.layers)} entries, but the stages cover {expected} layers")

    @property
    def num_stages(self) -> int:
        """The number of stages."""
        return len(self.stages)

    @property
    def num_units(self) -> int:
        """The number of layers that the stages cover."""
        return self.stages[-1].stop

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The devices of the plan, in the order of their first use."""
        groups = [group for stage in self.stages for group in (stage.forward, stage.backward)]
        return tuple(dict.fromkeys(replica.device for group in groups for replica in group))

    @cached_property
    def ordered_digest(self) -> str:
        """A digest of everything that the order of the compute actions depends on, the order itself excepted."""
        return io.digest(_Ordered(self.schedule, self.split_backward, self.num_microbatches, self.stages))

    @property
    def has_order(self) -> bool:
        """Whether the plan holds the order of its actions; one made for other stages or another schedule is stale."""
        return self.order is not None and self.order.plan == self.ordered_digest

    @cached_property
    def digest(self) -> str:
        """A digest of the contents."""
        without = [name for name, value in (("kinds", self.kinds), ("messages", self.messages)) if not value]
        return io.digest(self, without=without)

    def _repr_html_(self) -> str:
        """The plan as HTML, for notebooks."""
        from penstock.plan.notebook import plan_html

        return plan_html(self)

    def cite(self, *, bibtex: bool = False) -> str:
        """The papers behind the plan.

        Args:
            bibtex: Return BibTeX entries instead of one line per paper.
        """
        from penstock.plan.citations import papers_behind

        return "\n".join(paper.bibtex if bibtex else paper.text for paper in papers_behind(self))


class _Ordered(msgspec.Struct, frozen=True):
    schedule: str
    split_backward: bool
    num_microbatches: int
    stages: tuple[Stage, ...]


def on(*devices: str) -> Group:
    """A group of devices with equal shares.

    >>> on("d0", "d1")
    (Replica(device='d0', share=0.5), Replica(device='d1', share=0.5))
    """
    return tuple(Replica(device, 1 / len(devices)) for device in devices)


def load_plan(path: str | Path) -> Plan:
    """Read a plan file.

    Args:
        path: A file that `save_plan` or `penstock plan -o` wrote.

    Returns:
        The plan, with its order if the file holds one.

    Raises:
        FileError: The file cannot be read.
        InputError: The file is not a valid plan.
    """
    return io.decode_json(io.read_bytes(path), Plan, where=str(path), expected_format=FORMAT)


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan file, atomically.

    Args:
        plan: The plan.
        path: The file; it is replaced if it exists.
    """
    io.write_whole(path, io.encode_json(plan))
