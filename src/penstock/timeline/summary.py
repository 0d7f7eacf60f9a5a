"""Summaries of a timeline: bubbles, waits and their causes, the critical path."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.program import COLLECTIVE_KINDS, NONE, SEND_KINDS, is_compute
from penstock.timeline.causes import compute_before
from penstock.timeline.types import Timeline


class DeviceUse(NamedTuple):
    """Use of one device in an iteration."""

    device: str
    busy_s: float
    first_s: float
    """When its first action began."""
    last_s: float
    """When its last action ended."""
    bubble_s: float
    """Time without work from the start to the end of the iteration."""
    inner_bubble_s: float
    """Time without work between its own first and last action."""
    peak_bytes: float
    sent_bytes: float
    """Messages, and its part in reductions."""


class Wait(NamedTuple):
    """A wait of a device: before which action, when, and for which transfer."""

    device: str
    action: int
    start_s: float
    end_s: float
    cause: int
    """The send or reduction that the device waited for."""
    transfer_s: float
    """Seconds of the wait during which the transfer ran; before that it waited itself."""


def device_uses(timeline: Timeline) -> list[DeviceUse]:
    """Busy time, bubbles, peak memory and traffic of every device that the program uses."""
    program = timeline.program
    found = []
    for number, name in enumerate(program.devices):
        span = slice(int(program.offsets[number]), int(program.offsets[number + 1]))
        compute = np.flatnonzero(timeline.is_compute[span]) + span.start
        if not len(compute):
            continue
        busy = float((timeline.end_s[compute] - timeline.start_s[compute]).sum())
        first, last = float(timeline.start_s[compute[0]]), float(timeline.end_s[compute[-1]])
        sends = np.isin(program.kind[span], (*SEND_KINDS, *COLLECTIVE_KINDS))
        found.append(
            DeviceUse(
                device=name,
                busy_s=busy,
                first_s=first,
                last_s=last,
                bubble_s=timeline.iteration_s - busy,
                inner_bubble_s=last - first - busy,
                peak_bytes=float(max(timeline.memory_during[span].max(), timeline.memory_after[span].max())),
                sent_bytes=float(timeline.num_bytes[span][sends].sum()),
            )
        )
    return found


def bubble_fraction(timeline: Timeline) -> float:
    """The part of the used devices' time in which they do not compute."""
    uses = device_uses(timeline)
    total = timeline.iteration_s * len(uses)
    return sum(use.bubble_s for use in uses) / total if total > 0 else 0.0


def rows_per_second(timeline: Timeline) -> float | None:
    """Rows trained per second; None where an iteration takes no time."""
    plan, seconds = timeline.program.plan, timeline.iteration_s
    return plan.num_microbatches * plan.micro_batch_size / seconds if seconds > 0 else None


def waits(timeline: Timeline) -> Iterator[Wait]:
    """All waits of devices before their compute actions, with their causes.

    Example:
        >>> import penstock
        >>> profile = penstock.load_profile("gpt2", kinds=["T4"])
        >>> cluster = penstock.load_cluster("2 x T4 @ 1 GB/s")
        >>> plan = penstock.plan(profile, cluster, 4, planner="balanced")
        >>> idle = waits(penstock.evaluate(plan, profile, cluster).timeline)
        >>> all(wait.end_s > wait.start_s for wait in idle)
        True
    """
    program = timeline.program
    for number, name in enumerate(program.devices):
        free = 0.0
        for action in range(int(program.offsets[number]), int(program.offsets[number + 1])):
            if not timeline.is_compute[action]:
                continue
            start = float(timeline.start_s[action])
            if start > free:
                cause = int(timeline.cause[action])
                began = float(timeline.start_s[cause]) if cause != NONE else start
                yield Wait(name, action, free, start, cause, start - max(began, free))
            free = float(timeline.end_s[action])


def critical_path(timeline: Timeline) -> list[int]:
    """The chain of actions that sets the iteration's length, from its first to its last."""
    if not len(timeline.end_s):
        return []
    held_by = _held_by(timeline)
    path = [int(np.argmax(timeline.end_s))]
    while held_by[path[-1]] != NONE:
        path.append(int(held_by[path[-1]]))
    return path[::-1]


def _held_by(timeline: Timeline) -> Ints:
    """For each action its cause, or the action before it where the measured wait was short.

    The arrival of a message is only known if the device waited for it, and a short wait may be runtime overhead. So a
    message that was in flight during other work for longer than the device waited does not lead to its sender.
    """
    cause, start, end = timeline.cause, timeline.start_s, timeline.end_s
    if timeline.origin != "measured":
        return cause
    before = compute_before(timeline.program)
    waits = timeline.is_compute & (before != NONE) & (cause != NONE) & (~is_compute(timeline.program.kind[cause]))
    beside, waited = end[before] - start[cause], end[cause] - end[before]
    return np.where(waits & (beside > waited), before, cause)
