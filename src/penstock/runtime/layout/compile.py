"""Compilation of a plan into a proved program.

A plan without its profile and cluster is compiled with placeholders, in which all layers take the same time. Every
order that a schedule makes from them is correct. For schedules that depend on times (zb_h1, zb_v, v_half, v_min, pe,
auto) it can differ from the order that was simulated for the plan.
"""

import re
from collections.abc import Sequence

import msgspec

from penstock.cluster import Cluster, Device, Host, Wire
from penstock.errors import InputError
from penstock.model import Block, shared_parameters
from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.profile import Profile, Sizes, Tie, Times, Unit
from penstock.program import Program, program_of_order
from penstock.program.lowering import lower
from penstock.program.proof import Proof, prove

PLACEHOLDER_KIND = "device"


def placeholder_profile(blocks: Sequence[Block], rows: int) -> Profile:
    """Return a profile with equal times for all blocks, and the parameters and ties of the model."""
    sizes = {name: item.numel() * item.element_size() for block in blocks for name, item in block.parameters.items()}
    trained = {name: item.requires_grad for block in blocks for name, item in block.parameters.items()}
    times = Times(kind=PLACEHOLDER_KIND, micro_batch_size=rows, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0)
    units = tuple(
        Unit(
            name=f"{number} {block.name}",
            parameter_bytes=sum(sizes[name] for name in block.parameters),
            trained_parameter_bytes=sum(sizes[name] for name, item in block.parameters.items() if item.requires_grad),
            sizes=(Sizes(micro_batch_size=rows, cut_bytes=1, saved_bytes=1),),
            times=(times,),
        )
        for number, block in enumerate(blocks)
    )
    ties = tuple(
        Tie(name=name, parameter_bytes=sizes[name], units=holders, is_trained=trained[name])
        for name, holders in shared_parameters(blocks).items()
    )
    return Profile(name="placeholder", micro_batch_size=rows, units=units, ties=ties)


def placeholder_cluster(plan: Plan) -> Cluster:
    """Return a cluster of the plan's devices, in the order of their names (d2 before d10)."""
    names = sorted(plan.devices, key=lambda name: [(int(digits or 0), text) for text, digits in _split_name(name)])
    wire = Wire(bandwidth=1e12)
    devices = tuple(Device(name=name, host="host", kind=PLACEHOLDER_KIND) for name in names)
    return Cluster(name="placeholder", hosts=(Host(name="host", inside=wire),), devices=devices, between=wire)


def price_plan(plan: Plan, blocks: Sequence[Block], profile: Profile | None, cluster: Cluster | None) -> Costs:
    """Return the costs of a plan.

    Args:
        plan: The plan.
        blocks: The layers of the model.
        profile: The profile of the plan, or None for a placeholder.
        cluster: The cluster of the plan, or None for a placeholder.

    Raises:
        InputError: Only one of profile and cluster is given.
    """
    plan = msgspec.structs.replace(plan, messages=None)  # the runtime's own messages, whatever the plan is for
    if (profile is None) != (cluster is None):
        raise InputError("profile and cluster must be given together", hint="Pass both, or neither.")
    if profile is None or cluster is None:
        return price(plan, placeholder_profile(blocks, plan.micro_batch_size), placeholder_cluster(plan), strict=False)
    return price(plan, profile, cluster)


def prove_plan(costs: Costs, *, within_memory: bool) -> Proof:
    """Return the proved program of a priced plan.

    Args:
        costs: The priced plan.
        within_memory: Whether to check memory limits. Placeholders know no memory.

    Raises:
        ProofError: The program cannot run, or needs more memory than a device has.
    """
    return prove(lower(_order(costs), costs), costs, within_memory=within_memory)


def compile_plan(plan: Plan, blocks: Sequence[Block], profile: Profile | None, cluster: Cluster | None) -> Proof:
    """Price and prove a plan; see `price_plan` and `prove_plan`."""
    return prove_plan(price_plan(plan, blocks, profile, cluster), within_memory=profile is not None)


def _order(costs: Costs) -> Program:
    """Return the compute program that the plan holds; a plan without one is ordered by its schedule."""
    if costs.plan.has_order:
        return program_of_order(costs.plan, [device.name for device in costs.cluster.devices])
    # Most plans hold their order, so schedules are loaded late.
    from penstock.schedules import schedule

    return schedule(costs)


def _split_name(name: str) -> list[tuple[str, str]]:
    return re.findall(r"(\D*)(\d*)", name)
