"""A profile and a cluster that say nothing, for a plan that comes alone.

Any order of jobs that a schedule makes from them is correct. For schedules that look at times (zb_h1, zb_v, pe, auto)
it need not be the order that was simulated when the plan was made: give the real ones for that.
"""

import re
from collections.abc import Sequence

from penstock.cluster import Cluster, Device, Host, Wire
from penstock.errors import InputError
from penstock.model import Block, shared_parameters
from penstock.plan import Plan
from penstock.plan.pricing import price
from penstock.profile import Profile, Sizes, Tie, Times, Unit
from penstock.program.lowering import lower
from penstock.program.proof import Proof, prove
from penstock.schedules import schedule

KIND = "device"


def neutral_profile(blocks: Sequence[Block], rows: int) -> Profile:
    """Equal times for all blocks; parameters and ties as they are."""
    sizes = {name: item.numel() * item.element_size() for block in blocks for name, item in block.parameters.items()}
    times = Times(kind=KIND, micro_batch_size=rows, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0)
    units = tuple(
        Unit(
            name=f"{number} {block.name}",
            parameter_bytes=sum(sizes[name] for name in block.parameters),
            sizes=(Sizes(micro_batch_size=rows, cut_bytes=1, saved_bytes=1),),
            times=(times,),
        )
        for number, block in enumerate(blocks)
    )
    ties = tuple(
        Tie(name=name, parameter_bytes=sizes[name], units=holders)
        for name, holders in shared_parameters(blocks).items()
    )
    return Profile(name="neutral", micro_batch_size=rows, units=units, ties=ties)


def neutral_cluster(plan: Plan) -> Cluster:
    """The plan's devices, in the order of their names (d2 before d10)."""
    names = sorted(plan.devices, key=lambda name: [(int(part or 0), text) for text, part in _parts(name)])
    wire = Wire(bandwidth=1e12)
    devices = tuple(Device(name=name, host="host", kind=KIND) for name in names)
    return Cluster(name="neutral", hosts=(Host(name="host", inside=wire),), devices=devices, between=wire)


def prove_plan(plan: Plan, blocks: Sequence[Block], profile: Profile | None, cluster: Cluster | None) -> Proof:
    """The plan's program, proved: for its profile and cluster, or for stand-ins if it comes alone."""
    if (profile is None) != (cluster is None):
        raise InputError(
            "a profile and a cluster go together", hint="Give both that the plan was made for, or neither."
        )
    if profile is None or cluster is None:
        costs = price(plan, neutral_profile(blocks, plan.micro_batch_size), neutral_cluster(plan), strict=False)
    else:
        costs = price(plan, profile, cluster)
    return prove(lower(schedule(costs), costs), costs, within_memory=profile is not None)


def _parts(name: str) -> list[tuple[str, str]]:
    return re.findall(r"(\D*)(\d*)", name)
