"""Changes of the cluster that would shorten the iteration most, each simulated with the same plan.

The critical path selects the changes: each device and link on it is made twice as fast, one at a time, with the order
of passes on every device unchanged. One more simulation has no memory limits and no recomputation, and orders the
plan again with its schedule. So every figure comes from a simulation, and changes that cannot matter are not simulated.
"""

from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.cluster import Device
from penstock.plan.pricing import Costs, price
from penstock.printable_text import escape_text
from penstock.profile import Profile
from penstock.program import Program, is_compute, is_pass, program_from_arrays
from penstock.report.analysis.what_if_changes import changes
from penstock.simulate import evaluate, evaluate_costs
from penstock.timeline import Timeline
from penstock.units import show_bytes, show_count, show_seconds

MIN_GAIN = 0.0005
"""Smaller gains would print as 0.0 %."""
MAX_SIMULATED_ACTIONS = 2_000_000
"""The limit over all simulations: about five seconds."""
MAX_ORDERED_ACTIONS = 20_000
"""Programs with more compute actions are not ordered again."""


class Improvement(NamedTuple):
    """One change, and the seconds of an iteration with it."""

    change: str
    seconds: float


def find_improvements(timeline: Timeline, costs: Costs, profile: Profile) -> list[Improvement]:
    """Simulate the plan with one improvement of the cluster at a time.

    Args:
        timeline: The simulated timeline of the plan.
        costs: The priced plan.
        profile: The profile of the model.

    Returns:
        The changes that shorten the iteration, the largest gain first.
    """
    program, before = timeline.program, timeline.iteration_s
    max_simulations = MAX_SIMULATED_ACTIONS // max(1, program.num_actions)
    improvements = []
    for change in changes(timeline, costs)[:max_simulations]:
        priced = price(costs.plan, profile, change.cluster, strict=False)
        is_ring_kept = _rings(priced) == _rings(costs)
        improvements.append(Improvement(change.text, _seconds(priced, program if is_ring_kept else _passes(program))))
    memory = _more_memory(program, costs, profile) if max_simulations else None
    if memory is not None:
        improvements.append(memory)
    better = [item for item in improvements if item.seconds < before * (1 - MIN_GAIN)]
    return sorted(better, key=lambda item: item.seconds)


def _rings(costs: Costs) -> list[tuple[int, ...]]:
    """The rings of all collectives. Lowering places a reduction by the links of its ring."""
    return [item.ring.devices for item in costs.collectives]


def _passes(program: Program) -> Program:
    """The same order without what lowering adds."""
    rows = is_pass(program.kind)
    counts = np.bincount(program.device_of[rows], minlength=len(program.devices))
    columns = program.kind[rows], program.stage[rows], program.microbatch[rows]
    return program_from_arrays(program.plan, program.devices, counts, *columns)


def _seconds(costs: Costs, program: Program) -> float:
    return evaluate_costs(costs, program=program, within_memory=False).timeline.iteration_s


def _more_memory(program: Program, costs: Costs, profile: Profile) -> Improvement | None:
    """The plan without memory limits and recomputation; None where that changes nothing or takes too long."""
    if int((is_compute(program.kind)).sum()) > MAX_ORDERED_ACTIONS or not np.isfinite(costs.memory_limit).any():
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
        return Improvement("no recomputation (memory suffices)", result.timeline.iteration_s) if recomputes else None
    most = int(short[np.argmax(over[short])])
    text = f"{show_bytes(float(over[most]))} more memory on {escape_text(costs.cluster.devices[most].name)}"
    if len(short) > 1:
        text += f" and up to as much on {show_count(len(short) - 1, 'other device')}"
    if recomputes:
        text += ", without recomputation"
    return Improvement(text, result.timeline.iteration_s)


def _unlimited(device: Device) -> Device:
    return msgspec.structs.replace(device, memory_bytes=None)


def improvement_sentences(improvements: list[Improvement], iteration_s: float, most: int = 3) -> list[str]:
    """Describe the changes with the largest gains.

    Args:
        improvements: The changes, the largest gain first.
        iteration_s: Seconds of an iteration without a change.
        most: The number of changes to name.

    Returns:
        One sentence.
    """
    if not improvements or iteration_s <= 0:
        return ["No simulated change (a device or a link of the critical path twice as fast) shortens the iteration."]
    changes_text = [
        f"{item.change}: {show_seconds(item.seconds)} ({100 * (1 - item.seconds / iteration_s):.1f} % less)"
        for item in improvements[:most]
    ]
    text = f"The most effective changes, each simulated alone: {changes_text[0]}"
    return [f"{'; then '.join((text, *changes_text[1:]))}."]
