"""The problem that a planner solves."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import (
    MAX_MICROBATCHES,
    Group,
    MessageModel,
    Origin,
    Plan,
    PlannedLayer,
    Shape,
    Stage,
    on,
    planned_layers,
)
from penstock.plan.pricing import UnitClock
from penstock.profile import MAX_MICRO_BATCH_SIZE, Cuts, Profile


@dataclass(frozen=True)
class Problem:
    """A model, a cluster, the micro-batches, and the form of the plan.

    Attributes:
        profile: The model's profile.
        cluster: The devices and links.
        num_microbatches: Micro-batches per iteration.
        micro_batch_size: Rows of a micro-batch; the profile's own size if None.
        schedule: The name of the schedule that orders the plan.
        split_backward: Whether input and weight gradients are separate actions.
        recompute: Whether every stage recomputes its forward before the backward.
        pipeline_depth: How many devices to use, the first ones of the cluster. If None, all devices, or as many as the
            model has layers for.
        num_chunks: Stages per device.
        shape: Assignment of stages to devices.
        profile_source: Where the profile comes from, for the plan file.
        cluster_source: Where the cluster comes from, for the plan file.
        cuts: Where stages may begin.
        messages: How the engine that the plan is for moves messages; None: as Penstock does.

    Raises:
        InputError: If the numbers are out of range or do not fit each other.
    """

    profile: Profile
    cluster: Cluster
    num_microbatches: int
    micro_batch_size: int | None = None
    schedule: str = "1f1b"
    split_backward: bool = False
    recompute: bool = False
    pipeline_depth: int | None = None
    num_chunks: int = 1
    shape: Shape = Shape.STRAIGHT
    profile_source: str = ""
    cluster_source: str = ""
    cuts: Cuts = "layers"
    messages: MessageModel | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.num_microbatches <= MAX_MICROBATCHES:
            raise InputError(
                f"number of micro-batches ({self.num_microbatches}) must be at least 1 and at most {MAX_MICROBATCHES}"
            )
        if self.micro_batch_size is not None and not 1 <= self.micro_batch_size <= MAX_MICRO_BATCH_SIZE:
            raise InputError(
                f"micro-batch size ({self.micro_batch_size}) must be at least 1 and at most {MAX_MICRO_BATCH_SIZE}"
            )
        if self.num_chunks < 1:
            raise InputError(f"number of stages per device ({self.num_chunks}) must be at least 1")
        if self.shape is Shape.STRAIGHT and self.num_chunks != 1:
            raise InputError(
                f"a straight pipeline has 1 stage per device, not {self.num_chunks}", hint="Use the shape loop or v."
            )
        units, devices = self.profile.num_units, self.cluster.num_devices
        if self.pipeline_depth is not None:
            if not 1 <= self.pipeline_depth <= devices:
                raise InputError(
                    f"pipeline depth ({self.pipeline_depth}) must be at least 1 and at most the number of devices "
                    f"({devices})"
                )
            if self.pipeline_depth * self.num_chunks > units:
                raise InputError(
                    f"number of stages ({self.pipeline_depth * self.num_chunks}) must be at most the number of layers "
                    f"({units})",
                    hint="Use a smaller pipeline depth or fewer stages per device.",
                )
        elif self.num_chunks > units:
            raise InputError(
                f"number of stages per device ({self.num_chunks}) must be at most the number of layers ({units})"
            )

    @property
    def rows_per_microbatch(self) -> int:
        """Rows of a micro-batch: `micro_batch_size`, or the profile's own size."""
        return self.micro_batch_size or self.profile.micro_batch_size

    @cached_property
    def stage_devices(self) -> list[int]:
        """The device index of each stage."""
        most = min(self.cluster.num_devices, self.profile.num_units // self.num_chunks)
        return self.shape.stage_devices(self.pipeline_depth or most, self.num_chunks)

    @cached_property
    def layers(self) -> tuple[PlannedLayer, ...]:
        """The layers of the profile, as every plan records them."""
        return planned_layers(self.profile)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the cluster's devices, as every plan records them."""
        return tuple(dict.fromkeys(device.kind for device in self.cluster.devices))

    @cached_property
    def clock(self) -> UnitClock:
        """Seconds of layers on devices."""
        return UnitClock(self.profile, self.cluster, self.rows_per_microbatch)

    def pipeline(self, planner: str, cuts: Sequence[int]) -> Plan:
        """Make the plan whose stage k has layers cuts[k] up to cuts[k + 1], on the device that the shape gives it."""
        names = [self.cluster.devices[device].name for device in self.stage_devices]
        groups = [on(name) for name in names]
        return self.plan(planner, cuts, groups)

    def plan(self, planner: str, cuts: Sequence[int], groups: Sequence[Group]) -> Plan:
        """Make the plan whose stage k has layers cuts[k] up to cuts[k + 1], on groups[k]."""
        stages = [
            Stage(
                start=int(cuts[index]),
                stop=int(cuts[index + 1]),
                forward=group,
                backward=group,
                recompute=self.recompute,
            )
            for index, group in enumerate(groups)
        ]
        return self._plan(planner, tuple(stages))

    def with_stages(self, plan: Plan) -> Plan:
        """The stages of another problem's plan, as a plan of this problem, under its own schedule."""
        own = self._plan(plan.planner, plan.stages)
        return msgspec.structs.replace(own, schedule=plan.schedule, split_backward=plan.split_backward)

    def _plan(self, planner: str, stages: tuple[Stage, ...]) -> Plan:
        return Plan(
            planner=planner,
            schedule=self.schedule,
            split_backward=self.split_backward,
            num_microbatches=self.num_microbatches,
            micro_batch_size=self.rows_per_microbatch,
            profile=Origin(name=self.profile.name, digest=self.profile.digest, source=self.profile_source),
            cluster=Origin(name=self.cluster.name, digest=self.cluster.digest, source=self.cluster_source),
            stages=stages,
            layers=self.layers,
            kinds=self.kinds,
            messages=self.messages,
        )
