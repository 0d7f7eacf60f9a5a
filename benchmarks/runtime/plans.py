"""The machine as a cluster, and the plans that Penstock runs on it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import penstock
from penstock import Cluster, Device, Host, Plan, Profile, SearchSpace, Wire

MESSAGE_BYTES = (8, 1 << 16, 1 << 20, 1 << 22, 1 << 24)
AUTO = "ours: auto"
ONE_SET = "ours: auto, one set of cuts"
TWO_SETS = "ours: two sets of cuts, forced"
ONE_STAGE = "ours: auto, one stage per rank"
BALANCED = "ours: balanced, zb_h1"
VARIANTS = (ONE_SET, ONE_STAGE, BALANCED)
"""Restricted variants of auto, none of which may be faster."""
EQUAL_1F1B = "ours: equal layers, 1f1b"


@dataclass(frozen=True)
class Option:
    """A plan with a name."""

    name: str
    plan: Plan

    @property
    def detail(self) -> str:
        """The stages in short: layers, the rank of the forward, and that of a remote backward."""
        words = []
        for stage in self.plan.stages:
            ahead, back = ("+".join(m.device for m in group) for group in (stage.forward, stage.backward))
            ranks = ahead if ahead == back else f"{ahead}>{back}"
            words.append(f"{stage.start}-{stage.stop - 1} {ranks}{' again' if stage.recompute else ''}")
        return f"{', '.join(words)}; {self.plan.schedule}"

    @property
    def has_remote_backward(self) -> bool:
        """Whether a stage has a remote backward."""
        return any(stage.has_remote_backward for stage in self.plan.stages)


def this_machine(profile: Profile, message_s: Sequence[float]) -> Cluster:
    """Two devices of the profiled kind on one host.

    The latency is the time of the smallest message. The bandwidth is a fit of the relative errors of the others.
    """
    latency = message_s[0]
    sizes = np.array(MESSAGE_BYTES[1:], dtype=float)
    beyond = np.maximum(np.array(message_s[1:]) - latency, 1e-9)
    weights = 1 / np.array(message_s[1:])
    per_byte = float(np.sum(weights**2 * sizes * beyond) / np.sum((weights * sizes) ** 2))
    wire = Wire(bandwidth=1 / per_byte, latency_s=latency)
    kind = profile.units[0].times[0].kind
    devices = tuple(Device(name=f"r{number}", host="here", kind=kind) for number in range(2))
    return Cluster(name="here", hosts=(Host(name="here", inside=wire),), devices=devices, between=wire)


def our_options(profile: Profile, cluster: Cluster, num_microbatches: int, equal_cuts: tuple[int, ...]) -> list[Option]:
    """The plan of `auto`, those with parts of its search space disabled, and common schedules and cuts.

    All are without replication: the comparison is between pipelines, and batch norm does not support it.
    """

    def auto(**search_space: bool | str) -> Plan:
        return penstock.plan(
            profile,
            cluster,
            num_microbatches,
            search_space=SearchSpace(replication=False, **search_space),  # type: ignore[arg-type]
        )

    def fixed(planner: str, schedule: str) -> Plan:
        return penstock.plan(profile, cluster, num_microbatches, planner=planner, schedule=schedule)

    options = [
        Option(AUTO, auto()),
        Option(ONE_SET, auto(two_cuts=False)),
        Option(TWO_SETS, fixed("bipartition", "auto")),
        Option(ONE_STAGE, auto(two_cuts=False, virtual_stages=False)),
        Option("ours: balanced, 1f1b", fixed("balanced", "1f1b")),
        Option(BALANCED, fixed("balanced", "zb_h1")),
        Option(EQUAL_1F1B, with_cuts(fixed("uniform", "1f1b"), equal_cuts)),
    ]
    if not options[2].has_remote_backward:
        del options[2]
    return options


def with_cuts(plan: Plan, cuts: tuple[int, ...]) -> Plan:
    """A plan of one stage per device, with other cuts."""
    from msgspec.structs import replace

    ends = [0, *cuts, plan.num_units]
    stages = [
        replace(stage, start=start, stop=stop) for stage, start, stop in zip(plan.stages, ends, ends[1:], strict=False)
    ]
    return replace(plan, stages=tuple(stages))


def same_work(options: Sequence[Option]) -> dict[str, str]:
    """Options with the same plan as an earlier one, by name. They are not measured twice."""
    first: dict[tuple[object, ...], str] = {}
    twins = {}
    for option in options:
        key = (option.plan.stages, option.plan.schedule)
        if key in first:
            twins[option.name] = first[key]
        first.setdefault(key, option.name)
    return twins
