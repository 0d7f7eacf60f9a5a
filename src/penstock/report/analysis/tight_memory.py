"""What fills the memory of devices that are nearly full, and what one GB more on each of them would gain.

The gain is found by ordering the same stages again with more memory, with and without the recomputation of each stage
that recomputes there. Other cuts are not tried: that is what planning again does.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from penstock.arrays import Floats
from penstock.plan import Plan
from penstock.plan.pricing import Costs
from penstock.printable_text import escape_text
from penstock.profile import Profile
from penstock.program import find_jobs, is_compute
from penstock.program.proof import memory_parts
from penstock.simulate import evaluate
from penstock.timeline import Timeline
from penstock.units import show_bytes, show_count, show_percent, show_seconds

TIGHT = 0.95
"""From this part of its memory on, a device counts as nearly full."""
MORE_BYTES = 1_000_000_000
MAX_ORDERED_ACTIONS = 20_000
"""Programs with more compute actions are not ordered again."""
MAX_STAGES = 4
"""How many stages are tried without recomputation."""
MAX_DEVICES = 3
"""How many devices sentences name."""
MIN_GAIN = 0.0005
"""Smaller gains would print as 0.0 %."""


class TightDevice(NamedTuple):
    """A device that is nearly full, and what its memory holds at the peak."""

    device: str
    limit_bytes: float
    peak_bytes: float
    action: str
    """The action during which its memory is fullest."""
    parts: tuple[tuple[str, float], ...]
    """What the memory holds then, the largest part first."""


class TightMemory(NamedTuple):
    """All devices that are nearly full, the fullest first, and the iteration with one GB more on each."""

    devices: tuple[TightDevice, ...]
    more_s: float | None
    """None if the program is too large to be ordered again."""


def find_tight_memory(timeline: Timeline, costs: Costs, profile: Profile) -> TightMemory | None:
    """Find the devices that are nearly full; None if there are none.

    Args:
        timeline: The simulated timeline of the plan.
        costs: The priced plan.
        profile: The profile of the model.
    """
    program = timeline.program
    peaks = np.maximum(costs.static_bytes, _peaks(timeline, costs))
    tight = [
        device
        for device in np.argsort(-peaks / costs.memory_limit, kind="stable").tolist()
        if peaks[device] >= TIGHT * costs.memory_limit[device] and program.offsets[device] < program.offsets[device + 1]
    ]
    if not tight:
        return None
    jobs = find_jobs(program, costs)
    devices = []
    for device in tight:
        first, last = int(program.offsets[device]), int(program.offsets[device + 1])
        highest = np.maximum(timeline.memory_during[first:last], timeline.memory_after[first:last])
        action = first + int(np.argmax(highest))
        parts = [item for item in memory_parts(program, costs, jobs, device, action) if item[1] >= 0.5]
        devices.append(
            TightDevice(
                program.devices[device],
                float(costs.memory_limit[device]),
                float(peaks[device]),
                str(program.action(action)),
                tuple(sorted(parts, key=lambda item: -item[1])),
            )
        )
    return TightMemory(tuple(devices), _with_more(timeline, costs, profile, tight))


def _peaks(timeline: Timeline, costs: Costs) -> Floats:
    program = timeline.program
    peaks = np.zeros(costs.num_devices)
    for device in range(len(program.devices)):
        span = slice(int(program.offsets[device]), int(program.offsets[device + 1]))
        highest = np.maximum(timeline.memory_during[span], timeline.memory_after[span])
        peaks[device] = highest.max(initial=0.0)
    return peaks


def _with_more(timeline: Timeline, costs: Costs, profile: Profile, tight: list[int]) -> float | None:
    """The shortest iteration of the same stages with one GB more on the tight devices."""
    program = timeline.program
    if int(is_compute(program.kind).sum()) > MAX_ORDERED_ACTIONS:
        return None
    devices = tuple(
        msgspec.structs.replace(device, memory_bytes=device.memory_bytes + MORE_BYTES)
        if number in tight and device.memory_bytes is not None
        else device
        for number, device in enumerate(costs.cluster.devices)
    )
    cluster = msgspec.structs.replace(costs.cluster, devices=devices)
    names = {costs.cluster.devices[device].name for device in tight}
    best_s = timeline.iteration_s
    for plan in _variants(costs.plan, names):
        result = evaluate(plan, profile, cluster, strict=False, within_memory=False)
        if not result.costs.over_bytes(result.proof.peak_bytes).any():
            best_s = min(best_s, result.timeline.iteration_s)
    return best_s


def _variants(plan: Plan, names: set[str]) -> list[Plan]:
    """The plan without its order, and the same with one stage of these devices that does not recompute."""
    free = msgspec.structs.replace(plan, order=None)
    recomputing = [
        number
        for number, stage in enumerate(plan.stages)
        if stage.recompute and names & {replica.device for replica in stage.backward}
    ]
    variants = [free]
    for chosen in recomputing[:MAX_STAGES]:
        stages = list(plan.stages)
        stages[chosen] = msgspec.structs.replace(stages[chosen], recompute=False)
        variants.append(msgspec.structs.replace(free, stages=tuple(stages)))
    return variants


def tight_memory_sentences(tight: TightMemory, iteration_s: float) -> list[str]:
    """Describe which bytes bind on which device, and what more memory would gain.

    Args:
        tight: The devices that are nearly full.
        iteration_s: Seconds of an iteration of the plan.
    """
    sentences = []
    for item in tight.devices[:MAX_DEVICES]:
        parts = ", ".join(f"{text} {show_bytes(size)}" for text, size in item.parts)
        sentences.append(
            f"Memory of {escape_text(item.device)} is {show_percent(item.peak_bytes / item.limit_bytes)} full "
            f"({show_bytes(item.peak_bytes)} of {show_bytes(item.limit_bytes)}) during {item.action}: {parts}."
        )
    others = len(tight.devices) - MAX_DEVICES
    if others > 0:
        sentences.append(f"{show_count(others, 'other device')} {'is' if others == 1 else 'are'} nearly full, too.")
    if tight.more_s is None or iteration_s <= 0:
        return sentences
    where = "there" if len(tight.devices) == 1 else "on each of these devices"
    gain = 1 - tight.more_s / iteration_s
    if gain < MIN_GAIN:
        sentences.append(f"With {show_bytes(MORE_BYTES)} more {where}, the same stages would not be faster.")
    else:
        sentences.append(
            f"With {show_bytes(MORE_BYTES)} more {where}, the same stages would take {show_seconds(tight.more_s)}, "
            f"{show_percent(gain)} less."
        )
    return sentences
