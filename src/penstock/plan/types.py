"""A plan: which devices run the forward and the backward of which units. Also the file format (docs/formats.md)."""

import math
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from penstock import io
from penstock.profile import Rows

FORMAT = "penstock.plan/2"

MAX_MICROBATCHES = 2**24
SHARE_TOLERANCE = 1e-9
"""By how much shares may fail to add up to 1; so nobody may have less than that."""


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device of a group, and the share of every micro-batch's rows that it takes."""

    device: str
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0


Group = tuple[Replica, ...]


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The units from `start` up to, not including, `stop`, with one forward and one backward group."""

    start: Annotated[int, msgspec.Meta(ge=0)]
    stop: Annotated[int, msgspec.Meta(ge=1)]
    forward: Group
    backward: Group
    recompute: bool = False
    """Keep only the stage's input, and run its forward again before its backward."""

    def __post_init__(self) -> None:
        if self.start >= self.stop:
            raise ValueError(f"a stage from unit {self.start} to {self.stop} is empty")
        for side, group in (("forward", self.forward), ("backward", self.backward)):
            if not group:
                raise ValueError(f"the {side} group is empty")
            if len({replica.device for replica in group}) != len(group):
                raise ValueError(f"the {side} group names a device twice")
            if not all(replica.share > SHARE_TOLERANCE for replica in group):
                raise ValueError(f"every share of the {side} group must be above {SHARE_TOLERANCE}")
            total = math.fsum(replica.share for replica in group)
            if not abs(total - 1) <= SHARE_TOLERANCE:
                raise ValueError(f"the shares of the {side} group add up to {total:.6g}, not to 1")
        if [replica.share for replica in self.forward] != [replica.share for replica in self.backward]:
            raise ValueError("the forward and the backward group must have the same shares, in the same order")

    @property
    def has_remote_backward(self) -> bool:
        """Whether some forward and its backward run on different devices."""
        return self.forward != self.backward

    @property
    def num_replicas(self) -> int:
        """How many devices share the forward (and as many the backward)."""
        return len(self.forward)


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a plan was made for: its name, the digest of its contents, and where it was read from."""

    name: str
    digest: str
    source: str = ""


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The stages in model order, and the number of micro-batches."""

    format: str = FORMAT
    planner: str
    schedule: str
    split_backward: bool = False
    """Run the backward as I and W, also where the schedule does not ask for it."""
    num_microbatches: Annotated[int, msgspec.Meta(ge=1, le=MAX_MICROBATCHES)]
    micro_batch_size: Rows
    """Rows of a micro-batch."""
    profile: Origin
    cluster: Origin
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("a plan needs at least one stage")
        expected = 0
        for number, stage in enumerate(self.stages):
            if stage.start != expected:
                raise ValueError(f"stage {number} starts at unit {stage.start}, not at {expected}")
            expected = stage.stop

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return len(self.stages)

    @property
    def num_units(self) -> int:
        """How many units the stages cover."""
        return self.stages[-1].stop

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The devices that the plan uses, in the order in which it first names them."""
        groups = [group for stage in self.stages for group in (stage.forward, stage.backward)]
        return tuple(dict.fromkeys(replica.device for group in groups for replica in group))

    @cached_property
    def digest(self) -> str:
        """A short name for the contents."""
        return io.digest(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from penstock.plan.notebook import plan_html

        return plan_html(self)

    def cite(self, *, bibtex: bool = False) -> str:
        """The papers behind the plan, one a line; or as the entries of a BibTeX file."""
        from penstock.plan.citations import papers_behind

        return "\n".join(paper.bibtex if bibtex else paper.text for paper in papers_behind(self))


def on(*devices: str) -> Group:
    """A group of devices with equal shares.

    >>> on("d0", "d1")
    (Replica(device='d0', share=0.5), Replica(device='d1', share=0.5))
    """
    return tuple(Replica(device, 1 / len(devices)) for device in devices)


def load_plan(path: str | Path) -> Plan:
    """Read a plan file."""
    return io.decode_json(io.read_bytes(path), Plan, where=str(path), expected_format=FORMAT)


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan file, whole or not at all."""
    io.write_whole(path, io.encode_json(plan))
