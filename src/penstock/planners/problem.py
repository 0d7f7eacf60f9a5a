"""What a planner is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import MAX_MICROBATCHES, Group, Origin, Plan, Segment, Shape, on
from penstock.plan.pricing import UnitClock
from penstock.profile import MAX_ROWS, Profile


@dataclass(frozen=True)
class Problem:
    """A model, a cluster, the number of micro-batches, and what the plan should look like.

    `num_stages` is the number of devices in the row (all, or as many as there are units, if not given); each of them
    gets `num_chunks` segments, laid out as `shape` says.
    """

    profile: Profile
    cluster: Cluster
    num_microbatches: int
    rows: int | None = None
    schedule: str = "1f1b"
    split_backward: bool = False
    recompute: bool = False
    num_stages: int | None = None
    num_chunks: int = 1
    shape: Shape = Shape.STRAIGHT
    profile_source: str = ""
    cluster_source: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.num_microbatches <= MAX_MICROBATCHES:
            limits = f"at least 1 and at most {MAX_MICROBATCHES}"
            raise InputError(f"the number of micro-batches must be {limits}, not {self.num_microbatches}")
        if self.rows is not None and not 1 <= self.rows <= MAX_ROWS:
            raise InputError(f"a micro-batch must have at least 1 row and at most {MAX_ROWS}, not {self.rows}")
        if self.num_chunks < 1:
            raise InputError(f"a device must hold at least 1 segment, not {self.num_chunks}")
        if self.shape is Shape.STRAIGHT and self.num_chunks != 1:
            raise InputError(
                f"a straight pipeline has 1 segment a device, not {self.num_chunks}", hint="Use loop or v."
            )
        units, devices = self.profile.num_units, self.cluster.num_devices
        if self.num_stages is not None:
            if not 1 <= self.num_stages <= devices:
                raise InputError(f"{self.num_stages} stages: the cluster has {devices} devices, and each takes one")
            if self.num_stages * self.num_chunks > units:
                raise InputError(
                    f"{self.num_stages * self.num_chunks} segments: the model has only {units} units",
                    hint="Ask for fewer stages or fewer segments a device.",
                )
        elif self.num_chunks > units:
            raise InputError(f"{self.num_chunks} segments a device: the model has only {units} units")

    @property
    def microbatch_rows(self) -> int:
        """Rows of a micro-batch."""
        return self.rows or self.profile.rows

    @cached_property
    def lanes(self) -> list[int]:
        """The device of each segment."""
        most = min(self.cluster.num_devices, self.profile.num_units // self.num_chunks)
        return self.shape.lanes(self.num_stages or most, self.num_chunks)

    @cached_property
    def clock(self) -> UnitClock:
        """Seconds of units on devices."""
        return UnitClock(self.profile, self.cluster, self.microbatch_rows)

    def pipeline(self, planner: str, cuts: Sequence[int]) -> Plan:
        """The plan with segment k, on the device that the shape says, from cuts[k] to cuts[k + 1]."""
        names = [self.cluster.devices[lane].name for lane in self.lanes]
        groups = [on(name) for name in names]
        return self.plan(planner, cuts, groups)

    def plan(self, planner: str, cuts: Sequence[int], groups: Sequence[Group]) -> Plan:
        """The plan with segment k, on group k, from cuts[k] to cuts[k + 1]."""
        segments = [
            Segment(
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
            rows=self.microbatch_rows,
            profile=Origin(name=self.profile.name, digest=self.profile.digest, source=self.profile_source),
            cluster=Origin(name=self.cluster.name, digest=self.cluster.digest, source=self.cluster_source),
            segments=tuple(segments),
        )
