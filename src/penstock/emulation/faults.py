"""What is to go wrong in an emulation, as people write it.

d1=3x           device d1 takes three times as long
d0-d1=0.1x@10s  both directions between d0 and d1 have a tenth of their bandwidth from second 10 on (of the cluster's
                time, counted from the first step); hosts can be named too: all links between their devices
2@3             rank 2 is killed when step 3 begins
"""

import math
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from penstock.cluster.types import Cluster
from penstock.errors import InputError
from penstock.quantities import parse_seconds

_FACTOR = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,2})?)\s*[xX×]?\Z")
_KILL = re.compile(r"([0-9]{1,6})@([0-9]{1,9})\Z")

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
    device, _, factor = text.rpartition("=")
    where = f"--slow {text[:60]}"
    if device not in used:
        hint = f"Write --slow device=3x; devices: {', '.join(used)}."
        raise InputError(f"{device[:60]!r} is not a device of the plan", where=where, hint=hint)
    return Slowed(device, _factor(factor, where))


def parse_link(text: str, cluster: Cluster, used: Sequence[str]) -> LinkFault:
    """Links that degrade, from their text.

    >>> from penstock.cluster.load import load_cluster
    >>> parse_link("d0-d1=0.5x@2s", load_cluster("2 x X @ 1 GB/s"), ["d0", "d1"])
    LinkFault(links=(('d0', 'd1'), ('d1', 'd0')), factor=0.5, at_s=2.0)
    """
    where = f"--link {text[:60]}"
    ends, _, change = text.rpartition("=")
    factor, _, moment = change.partition("@")
    pairs = [(ends[:place], ends[place + 1 :]) for place, char in enumerate(ends) if char == "-"]
    members = {device.name: {device.name} for device in cluster.devices if device.name in used}
    for device in cluster.devices:
        if device.name in used and device.host not in cluster.index:
            members.setdefault(device.host, set()).add(device.name)
    found = next(((one, other) for one, other in pairs if one in members and other in members), None)
    if found is None:
        hint = f"Write --link a-b=0.1x@10s with devices or hosts of the plan: {', '.join(members)}."
        raise InputError(f"{ends[:60]!r} does not name two ends of links", where=where, hint=hint)
    one, other = (sorted(members[end], key=cluster.index.__getitem__) for end in found)
    links = [(a, b) for a in one for b in other if a != b]
    if not links:
        raise InputError("there is no link from a device to itself", where=where)
    both = tuple(dict.fromkeys([*links, *((b, a) for a, b in links)]))
    return LinkFault(both, _factor(factor, where), parse_seconds(moment, where=where) if moment else 0.0)


def parse_killed(text: str, num_ranks: int) -> Killed:
    """A rank to kill, from its text.

    >>> parse_killed("2@3", 4)
    Killed(rank=2, step=3)
    """
    match = _KILL.match(text)
    where = f"--kill {text[:60]}"
    if match is None:
        raise InputError("this is not a rank and a step", where=where, hint="Write --kill 2@3: rank 2, at step 3.")
    rank, step = int(match[1]), int(match[2])
    if rank >= num_ranks:
        raise InputError(f"there is no rank {rank}", where=where, hint=f"The plan has ranks 0 to {num_ranks - 1}.")
    return Killed(rank, step)


def _factor(text: str, where: str) -> float:
    match = _FACTOR.match(text.strip()) if len(text) < 30 else None
    if match is None or not 0 < float(match[1]) < math.inf:
        raise InputError(f"{text[:60]!r} is not a factor", where=where, hint="Write 3x, or 0.1x for a tenth.")
    return float(match[1])
