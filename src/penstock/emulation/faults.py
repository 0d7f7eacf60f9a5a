"""Faults of an emulation, and their notation on the command line.

d1=3x           device d1 takes three times as long
d0-d1=0.1x@10s  both directions between d0 and d1 have a tenth of their bandwidth from second 10 on (of the cluster's
                time, counted from the first step); a host name selects all links of its devices
2@1             rank 2 is killed at the start of step 1; steps count from 0
"""

import math
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.units import parse_seconds

_FACTOR = re.compile(r"((?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)\s*[xX×]?\Z")
_KILL = re.compile(r"([0-9]{1,6})@([0-9]{1,9})\Z")

MAX_NAMES = 16

Factor = Annotated[float, msgspec.Meta(gt=0)]


class SlowDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device that takes `factor` times as long."""

    device: str
    factor: Factor


class LinkFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Directed links whose bandwidth is multiplied by `factor` from a moment on."""

    links: tuple[tuple[str, str], ...]
    factor: Factor
    at_s: float = 0.0
    """Time of the cluster, counted from the first step."""
    ends: tuple[str, str] = ("", "")
    """The two devices or hosts, as they were written."""


class KilledRank(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rank that is killed at the start of a step."""

    rank: int
    step: int


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All faults of an emulation."""

    slowed: tuple[SlowDevice, ...] = ()
    links: tuple[LinkFault, ...] = ()
    killed: tuple[KilledRank, ...] = ()

    def slowness(self, device: str) -> float:
        """Return by how much a device is slower than in the cluster."""
        return math.prod(item.factor for item in self.slowed if item.device == device)


def parse_slow_device(text: str, used: Sequence[str], *, where: str = "") -> SlowDevice:
    """Parse a slow device; `used` are the devices of the plan, and `where` names the text if it is no option.

    >>> parse_slow_device("d1=3x", ["d0", "d1"])
    SlowDevice(device='d1', factor=3.0)
    """
    device, equals, factor = text.rpartition("=")
    hint = f"Use DEVICE=FACTOR, such as {'' if where else '--slow '}{used[0]}=3x. {list_names(used)}."
    where = where or f"--slow {text[:60]}"
    if not equals:
        raise InputError("the factor is missing", where=where, hint=hint)
    if device not in used:
        raise InputError(f"{device[:60]!r} is not a device of the plan", where=where, hint=hint)
    return SlowDevice(device, _factor(factor, where))


def parse_link_fault(text: str, cluster: Cluster, used: Sequence[str], *, where: str = "") -> LinkFault:
    """Parse links that degrade; `where` names the text if it is no option.

    >>> from penstock.cluster.load import load_cluster
    >>> parse_link_fault("d0-d1=0.5x@2s", load_cluster("2 x X @ 1 GB/s"), ["d0", "d1"])
    LinkFault(links=(('d0', 'd1'), ('d1', 'd0')), factor=0.5, at_s=2.0, ends=('d0', 'd1'))
    """
    option = "" if where else "--link "
    where = where or f"--link {text[:60]}"
    ends, equals, change = text.rpartition("=")
    factor, _, moment = change.partition("@")
    pairs = [(ends[:index], ends[index + 1 :]) for index, char in enumerate(ends) if char == "-"]
    members = {device.name: {device.name} for device in cluster.devices if device.name in used}
    for device in cluster.devices:
        if device.name in used and device.host not in cluster.index:
            members.setdefault(device.host, set()).add(device.name)
    names = next(((one, other) for one, other in pairs if one in members and other in members), None)
    example = "-".join([*members][:2])
    hint = (
        f"Use END-END=FACTOR, such as {option}{example}=0.1x for a tenth of the bandwidth, or {example}=0.1x@10s from "
        f"second 10 on. {list_names(list(members))}."
    )
    if not equals:
        raise InputError("the factor is missing", where=where, hint=hint)
    if names is None:
        raise InputError(f"{ends[:60]!r} does not name two devices or hosts", where=where, hint=hint)
    one, other = (sorted(members[end], key=cluster.index.__getitem__) for end in names)
    links = [(a, b) for a in one for b in other if a != b]
    if not links:
        raise InputError("a device has no link to itself", where=where)
    both = tuple(dict.fromkeys([*links, *((b, a) for a, b in links)]))
    return LinkFault(both, _factor(factor, where), parse_seconds(moment, where=where) if moment else 0.0, names)


def parse_killed_rank(text: str, num_ranks: int, num_steps: int) -> KilledRank:
    """Parse a rank to kill; the emulation has `num_steps` steps, from 0.

    >>> parse_killed_rank("2@1", 4, 3)
    KilledRank(rank=2, step=1)
    """
    match = _KILL.match(text)
    where = f"--kill {text[:60]}"
    if match is None:
        example = f"--kill {num_ranks - 1}@{min(1, num_steps - 1)}"
        hint = f"Use RANK@STEP, such as {example}. {_list_steps(num_steps)}."
        raise InputError("expected a rank and a step", where=where, hint=hint)
    rank, step = int(match[1]), int(match[2])
    if rank >= num_ranks:
        raise InputError(f"rank {rank} does not exist", where=where, hint=f"The plan has ranks 0 to {num_ranks - 1}.")
    if step >= num_steps:
        hint = f"{_list_steps(num_steps)}. Use --steps for more."
        raise InputError(f"step {step} does not exist", where=where, hint=hint)
    return KilledRank(rank, step)


def _list_steps(num_steps: int) -> str:
    return "The only step is 0" if num_steps == 1 else f"Steps are 0 to {num_steps - 1}"


def list_names(names: Sequence[str]) -> str:
    """List the valid names; of a large cluster only the first ones."""
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return f"Valid names: {', '.join(names[:MAX_NAMES])}{more}"


def _factor(text: str, where: str) -> float:
    match = _FACTOR.match(text.strip()) if len(text) < 30 else None
    if match is None or not 0 < float(match[1]) < math.inf:
        raise InputError(
            f"{text[:60]!r} is not a factor", where=where, hint="Use, for example, 3x, or 0.1x for a tenth."
        )
    return float(match[1])
