"""What would help most: the same plan simulated again with one thing in the cluster better.

What is tried follows from the critical path: the devices and links on it are each made twice as fast, one at a time,
with every device's order of jobs kept. Memory is tried where it costs time: with no limits, nothing recomputed, and
the plan's schedule free to choose its order again. So every figure is a simulation's, and those that do not matter are
not tried.
"""

from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.cluster import Device
from penstock.plan.pricing import Costs, price
from penstock.profile import Profile
from penstock.program import Kind, Program
from penstock.report.analysis.what_if_changes import changes
from penstock.report.names import shown_name
from penstock.simulate import evaluate, evaluate_costs
from penstock.timeline import Timeline
from penstock.units import show_bytes, show_seconds

LEAST_GAIN = 0.0005
"""What gains less would show as 0.0 %."""
MOST_ACTIONS = 2_000_000
"""So many actions are simulated in all: about five seconds."""
MOST_JOBS_ORDERED = 20_000
"""Larger programs are not put in order again."""


class Help(NamedTuple):
    """One change, and what the iteration would take with it."""

    change: str
    seconds: float


def what_would_help(timeline: Timeline, costs: Costs, profile: Profile) -> list[Help]:
    """Changes that make the iteration shorter, the one that gains most first."""
    program, before = timeline.program, timeline.iteration_s
    room = MOST_ACTIONS // max(1, program.num_actions)
    found = []
    for change in changes(timeline, costs)[:room]:
        priced = price(costs.plan, profile, change.cluster, strict=False)
        found.append(Help(change.text, _seconds(priced, program)))
    memory = _more_memory(program, costs, profile) if room else None
    if memory is not None:
        found.append(memory)
    better = [item for item in found if item.seconds < before * (1 - LEAST_GAIN)]
    return sorted(better, key=lambda item: item.seconds)


def _seconds(costs: Costs, program: Program) -> float:
    return evaluate_costs(costs, program=program, within_memory=False).timeline.iteration_s


def _more_memory(program: Program, costs: Costs, profile: Profile) -> Help | None:
    """The plan without limits and recomputation; None where that changes nothing, or it takes long to find out."""
    if int((program.kind <= Kind.STEP).sum()) > MOST_JOBS_ORDERED or not np.isfinite(costs.memory_limit).any():
        return None
    devices = tuple(_unlimited(device) for device in costs.cluster.devices)
    cluster = msgspec.structs.replace(costs.cluster, devices=devices)
    stages = tuple(msgspec.structs.replace(stage, recompute=False) for stage in costs.plan.stages)
    plan = msgspec.structs.replace(costs.plan, stages=stages)
    result = evaluate(plan, profile, cluster, strict=False, within_memory=False)
    over = replace(result.costs, cluster=costs.cluster).over_bytes(result.proof.peak_bytes)
    short = np.flatnonzero(over > 0)
    recomputes = any(stage.recompute for stage in costs.plan.stages)
    if not len(short):
        return Help("no recomputation, for which there is room", result.timeline.iteration_s) if recomputes else None
    most = int(short[np.argmax(over[short])])
    text = f"{show_bytes(float(over[most]))} more memory on {shown_name(costs.cluster.devices[most].name)}"
    if len(short) > 1:
        text += f", and up to that on {len(short) - 1} other{'s' if len(short) > 2 else ''}"
    if recomputes:
        text += ", so that nothing is recomputed"
    return Help(text, result.timeline.iteration_s)


def _unlimited(device: Device) -> Device:
    return msgspec.structs.replace(device, memory_bytes=None)


def help_sentences(found: list[Help], iteration_s: float, most: int = 3) -> list[str]:
    """In words, with the gain."""
    if not found or iteration_s <= 0:
        return ["Nothing that was tried alone (a device or a link of the critical path twice as fast) would help."]
    told = [
        f"{item.change}: {show_seconds(item.seconds)} ({100 * (1 - item.seconds / iteration_s):.1f} % less)"
        for item in found[:most]
    ]
    text = f"What would help most, simulated with one change at a time: {told[0]}"
    return [f"{'; then '.join((text, *told[1:]))}."]
