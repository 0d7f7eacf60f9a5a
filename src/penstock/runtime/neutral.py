"""A profile and a cluster that say nothing, for a plan that comes alone.

Any order of jobs that a schedule makes from them is correct. For schedules that look at times (zb_h1, zb_v, pe, auto)
it need not be the order that was simulated when the plan was made: give the real ones for that.
"""

import re
from collections.abc import Sequence

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.model.blocks import Block, shared_parameters
from penstock.plan.types import Plan
from penstock.profile.types import Profile, Sizes, Tie, Times, Unit

KIND = "device"


def neutral_profile(blocks: Sequence[Block], rows: int) -> Profile:
    """Equal times for all blocks; parameters and ties as they are."""
    sizes = {name: item.numel() * item.element_size() for block in blocks for name, item in block.parameters.items()}
    times = Times(kind=KIND, rows=rows, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0)
    units = tuple(
        Unit(
            name=f"{number} {block.name}",
            parameter_bytes=sum(sizes[name] for name in block.parameters),
            sizes=(Sizes(rows=rows, cut_bytes=1, saved_bytes=1),),
            times=(times,),
        )
        for number, block in enumerate(blocks)
    )
    ties = tuple(
        Tie(name=name, parameter_bytes=sizes[name], units=holders)
        for name, holders in shared_parameters(blocks).items()
    )
    return Profile(name="neutral", rows=rows, units=units, ties=ties)


def neutral_cluster(plan: Plan) -> Cluster:
    """The plan's devices, in the order of their names (d2 before d10)."""
    names = sorted(plan.devices, key=lambda name: [(int(part or 0), text) for text, part in _parts(name)])
    wire = Wire(bandwidth=1e12)
    devices = tuple(Device(name=name, host="host", kind=KIND) for name in names)
    return Cluster(name="neutral", hosts=(Host(name="host", inside=wire),), devices=devices, between=wire)


def _parts(name: str) -> list[tuple[str, str]]:
    return re.findall(r"(\D*)(\d*)", name)
