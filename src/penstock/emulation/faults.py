"""What is to go wrong in an emulation, as people write it.

d1=3x           device d1 takes three times as long
d0-d1=0.1x@10s  both directions between d0 and d1 have a tenth of their bandwidth from second 10 on (of the cluster's
                time, counted from the first step); hosts can be named too: all links between their devices
2@1             rank 2 is killed when step 1 begins; steps are counted from 0, as everywhere
"""

import math
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.units import parse_seconds

_FACTOR = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,2})?)\s*[xX×]?\Z")
_KILL = re.compile(r"([0-9]{1,6})@([0-9]{1,9})\Z")

MOST_NAMES = 16

Factor = Annotated[float, msgspec.Meta(gt=0)]


class Slowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device that takes so many times as long."""

    device: str
    factor: Factor


class LinkFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Directed links that have so much of their bandwidth from a moment on."""

    links: tuple[tuple[str, str], ...]
    factor: Factor
    at_s: float = 0.0
    """In the cluster's time, from the first step on."""
    ends: tuple[str, str] = ("", "")
    """Devices or hosts, as they were named."""


class Killed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rank that is killed when a step begins."""

    rank: int
    step: int


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is to go wrong."""

    slowed: tuple[Slowed, ...] = ()
    links: tuple[LinkFault, ...] = ()
    killed: tuple[Killed, ...] = ()

    def slowness(self, device: str) -> float:
        """By how much a device is slower than it should be."""
        return math.prod(item.factor for item in self.slowed if item.device == device)


def parse_slowed(text: str, used: Sequence[str]) -> Slowed:
    """A slow device from its text; `used` are the devices of the plan.

    >>> parse_slowed("d1=3x", ["d0", "d1"])
    Slowed(device='d1', factor=3.0)
    """
    device, equals, factor = text.rpartition("=")
    where = f"--slow {text[:60]}"
    hint = f"Write a device, = and how many times as long it takes, such as --slow {used[0]}=3x; {_there_are(used)}."
    if not equals:
        raise InputError("there is no factor", where=where, hint=hint)
    if device not in used:
        raise InputError(f"{device[:60]!r} is not a device of the plan", where=where, hint=hint)
    return Slowed(device, _factor(factor, where))


def parse_link(text: str, cluster: Cluster, used: Sequence[str]) -> LinkFault:
    """Links that degrade, from their text.

    >>> from penstock.cluster.load import load_cluster
    >>> parse_link("d0-d1=0.5x@2s", load_cluster("2 x X @ 1 GB/s"), ["d0", "d1"])
    LinkFault(links=(('d0', 'd1'), ('d1', 'd0')), factor=0.5, at_s=2.0, ends=('d0', 'd1'))
    """
    where = f"--link {text[:60]}"
    ends, equals, change = text.rpartition("=")
    factor, _, moment = change.partition("@")
    pairs = [(ends[:place], ends[place + 1 :]) for place, char in enumerate(ends) if char == "-"]
    members = {device.name: {device.name} for device in cluster.devices if device.name in used}
    for device in cluster.devices:
        if device.name in used and device.host not in cluster.index:
            members.setdefault(device.host, set()).add(device.name)
    found = next(((one, other) for one, other in pairs if one in members and other in members), None)
    example = "-".join([*members][:2])
    hint = (
        f"Write two devices or hosts, = and a factor, such as --link {example}=0.1x for a tenth of the bandwidth, or "
        f"{example}=0.1x@10s from second 10 on; {_there_are(list(members))}."
    )
    if not equals:
        raise InputError("there is no factor", where=where, hint=hint)
    if found is None:
        raise InputError(f"{ends[:60]!r} does not name two ends of links", where=where, hint=hint)
    one, other = (sorted(members[end], key=cluster.index.__getitem__) for end in found)
    links = [(a, b) for a in one for b in other if a != b]
    if not links:
        raise InputError("there is no link from a device to itself", where=where)
    both = tuple(dict.fromkeys([*links, *((b, a) for a, b in links)]))
    return LinkFault(both, _factor(factor, where), parse_seconds(moment, where=where) if moment else 0.0, found)


def parse_killed(text: str, num_ranks: int, num_steps: int) -> Killed:
    """A rank to kill, from its text; `num_steps` are run, the first of them is step 0.

    >>> parse_killed("2@1", 4, 3)
    Killed(rank=2, step=1)
    """
    match = _KILL.match(text)
    where = f"--kill {text[:60]}"
    if match is None:
        example = f"--kill {num_ranks - 1}@{min(1, num_steps - 1)}"
        hint = f"Write a rank, @ and a step, such as {example}; {_steps(num_steps)}."
        raise InputError("this is not a rank and a step", where=where, hint=hint)
    rank, step = int(match[1]), int(match[2])
    if rank >= num_ranks:
        raise InputError(f"there is no rank {rank}", where=where, hint=f"The plan has ranks 0 to {num_ranks - 1}.")
    if step >= num_steps:
        hint = f"{_steps(num_steps)[0].upper()}{_steps(num_steps)[1:]}; --steps makes more."
        raise InputError(f"there is no step {step}", where=where, hint=hint)
    return Killed(rank, step)


def _steps(num_steps: int) -> str:
    there = "there is step 0 only" if num_steps == 1 else f"there are steps 0 to {num_steps - 1}"
    return f"steps are counted from 0, and {there}"


def _there_are(names: Sequence[str]) -> str:
    """What can be named; of a large cluster only the first ones."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f"there are {', '.join(names[:MOST_NAMES])}{more}"


def _factor(text: str, where: str) -> float:
    match = _FACTOR.match(text.strip()) if len(text) < 30 else None
    if match is None or not 0 < float(match[1]) < math.inf:
        raise InputError(f"{text[:60]!r} is not a factor", where=where, hint="Write 3x, or 0.1x for a tenth.")
    return float(match[1])
