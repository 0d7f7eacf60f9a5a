"""What a planner is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import MAX_MICROBATCHES, Group, Origin, Plan, Shape, Stage, on
from penstock.plan.pricing import UnitClock
from penstock.profile import MAX_MICRO_BATCH_SIZE, Profile


@dataclass(frozen=True)
class Problem:
    """A model, a cluster, the number of micro-batches, and what the plan should look like.

    `num_stages` is the number of devices in the row (all, or as many as there are units, if not given); each of them
    gets `num_chunks` stages, laid out as `shape` says.
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

    def __post_init__(self) -> None:
        if not 1 <= self.num_microbatches <= MAX_MICROBATCHES:
            limits = f"at least 1 and at most {MAX_MICROBATCHES}"
            raise InputError(f"the number of micro-batches must be {limits}, not {self.num_microbatches}")
        if self.micro_batch_size is not None and not 1 <= self.micro_batch_size <= MAX_MICRO_BATCH_SIZE:
            raise InputError(
                f"micro-batch size must be at least 1 and at most {MAX_MICRO_BATCH_SIZE}, not {self.micro_batch_size}"
            )
        if self.num_chunks < 1:
            raise InputError(f"a device must hold at least 1 stage, not {self.num_chunks}")
        if self.shape is Shape.STRAIGHT and self.num_chunks != 1:
            raise InputError(f"a straight pipeline has 1 stage a device, not {self.num_chunks}", hint="Use loop or v.")
        units, devices = self.profile.num_units, self.cluster.num_devices
        if self.pipeline_depth is not None:
            if not 1 <= self.pipeline_depth <= devices:
                raise InputError(f"{self.pipeline_depth} stages: the cluster has {devices} devices, and each takes one")
            if self.pipeline_depth * self.num_chunks > units:
                raise InputError(
                    f"{self.pipeline_depth * self.num_chunks} stages: the model has only {units} units",
                    hint="Ask for fewer stages or fewer stages a device.",
                )
        elif self.num_chunks > units:
            raise InputError(f"{self.num_chunks} stages a device: the model has only {units} units")

    @property
    def rows_per_microbatch(self) -> int:
        """Rows of a micro-batch."""
        return self.micro_batch_size or self.profile.micro_batch_size

    @cached_property
    def lanes(self) -> list[int]:
        """The device of each stage."""
        most = min(self.cluster.num_devices, self.profile.num_units // self.num_chunks)
        return self.shape.lanes(self.pipeline_depth or most, self.num_chunks)

    @cached_property
    def clock(self) -> UnitClock:
        """Seconds of units on devices."""
        return UnitClock(self.profile, self.cluster, self.rows_per_microbatch)

    def pipeline(self, planner: str, cuts: Sequence[int]) -> Plan:
        """The plan with stage k, on the device that the shape says, from cuts[k] to cuts[k + 1]."""
        names = [self.cluster.devices[lane].name for lane in self.lanes]
        groups = [on(name) for name in names]
        return self.plan(planner, cuts, groups)

    def plan(self, planner: str, cuts: Sequence[int], groups: Sequence[Group]) -> Plan:
        """The plan with stage k, on group k, from cuts[k] to cuts[k + 1]."""
        stages = [
            Stage(
                start=int(cuts[place]),
                stop=int(cuts[place + 1]),
                forward=group,
                backward=group,
                recompute=self.recompute,
            )
            for place, group in enumerate(groups)
        ]
        return Plan(
            planner=planner,
            schedule=self.schedule,
            split_backward=self.split_backward,
            num_microbatches=self.num_microbatches,
            micro_batch_size=self.rows_per_microbatch,
            profile=Origin(name=self.profile.name, digest=self.profile.digest, source=self.profile_source),
            cluster=Origin(name=self.cluster.name, digest=self.cluster.digest, source=self.cluster_source),
            stages=tuple(stages),
        )
