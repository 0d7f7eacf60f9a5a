"""Checks whether this machine kept up with an emulation, or its own limits distort the result."""

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.emulation.clock import Lateness
from penstock.emulation.network import Network
from penstock.emulation.spec import Emulation
from penstock.timeline import Timeline
from penstock.units import show_percent, show_rate, show_seconds

MAX_BUSY = 0.7
MAX_LATE = 0.02
"""Fraction of an action."""
MAX_OVERRUN = 0.01
"""Fraction of an iteration."""
MAX_LACKING = 0.02
"""Fraction of an iteration."""
SURE_RATE = 200e6
"""Bytes per second that a link reaches on any idle machine."""
MIN_BYTES = 1e6
"""The duration of smaller messages does not depend on bandwidth."""
MIN_WAIT_S = 1e-2
"""Seconds of this machine. A device that was idle for longer when a message arrived was waiting for it."""


def find_limits(
    emulation: Emulation, timelines: Sequence[Timeline], busy: Sequence[float], lateness: Sequence[Sequence[Lateness]]
) -> list[str]:
    """Return in which respects this machine did not keep up, as sentences; none if it did.

    Args:
        emulation: The emulation.
        timelines: The measured timelines, by iteration.
        busy: Fraction of this machine's processors in use, by iteration.
        lateness: Lateness by iteration and rank.
    """
    limits = [_busy(busy), _late(lateness), _overrun(emulation, timelines, lateness)]
    if emulation.is_shaped:
        limits.append(_lacking(emulation, timelines))
    return [text for text in limits if text]


def _busy(busy: Sequence[float]) -> str:
    most = max(busy, default=0.0)
    return f"the ranks used {show_percent(most)} of this machine's CPUs" if most > MAX_BUSY else ""


def _late(lateness: Sequence[Sequence[Lateness]]) -> str:
    ranks = [item for ranks in lateness for item in ranks if item.asleep_s > 0]
    worst = max(ranks, key=lambda item: item.woken_s / item.asleep_s, default=None)
    if worst is None or worst.woken_s <= MAX_LATE * worst.asleep_s:
        return ""
    late, action = worst.woken_s / worst.num_jobs, worst.asleep_s / worst.num_jobs
    return f"a rank woke up {show_seconds(late)} late from actions of {show_seconds(action)}, on average"


def _overrun(emulation: Emulation, timelines: Sequence[Timeline], lateness: Sequence[Sequence[Lateness]]) -> str:
    worst = max((item.overrun_s for ranks in lateness for item in ranks), default=0.0)
    usual = max((item.iteration_s * emulation.slow_down for item in timelines), default=0.0)
    if not usual or worst <= MAX_OVERRUN * usual:
        return ""
    return f"the runtime took longer than its actions, by {show_percent(worst / usual)} of an iteration"


def _lacking(emulation: Emulation, timelines: Sequence[Timeline]) -> str:
    """Check for a link that was slower than its emulated bandwidth for every message that a device waited for."""
    network = Network(emulation.cluster, emulation.devices, emulation.slow_down)
    rank_of = {name: rank for rank, name in enumerate(emulation.devices)}
    worst, text = MAX_LACKING, ""
    for (source, target), (moved, best) in _fastest(emulation, timelines).items():
        names = [emulation.cluster.devices[end].name for end in (source, target)]
        rate = network.rate(*(rank_of[name] for name in names))
        if rate <= SURE_RATE:
            continue
        lacking_s = moved * (1 / best - 1 / rate)
        share = lacking_s / (max(item.iteration_s for item in timelines) * emulation.slow_down)
        if share > worst:
            worst = share
            text = (
                f"the link from {names[0]} to {names[1]} is shaped to {show_rate(rate)}, but no message exceeded "
                f"{show_rate(best)}, which costs up to {show_percent(share)} of an iteration"
            )
    return text


def _fastest(emulation: Emulation, timelines: Sequence[Timeline]) -> dict[tuple[int, int], tuple[float, float]]:
    """Return by link the bytes per iteration that were waited for, and the largest rate of such a message."""
    dependencies = emulation.evaluation.proof.dependencies
    messages = np.flatnonzero((dependencies.receive >= 0) & (np.diff(dependencies.consumers.begin) > 0))
    users = dependencies.consumers.values[dependencies.consumers.begin[messages]]
    fastest: dict[tuple[int, int], tuple[float, float]] = {}
    for timeline in timelines:
        program = timeline.program
        arrived_s = timeline.end_s[dependencies.send[messages]]
        free_s = _free_s(timeline, users)
        # A device waits for its messages one after the other. Those that arrived before are found at the same time.
        order = np.lexsort((arrived_s, users))
        same = np.flatnonzero(users[order[1:]] == users[order[:-1]])
        free_s[order[same + 1]] = np.maximum(free_s[order[same + 1]], arrived_s[order[same]])
        for number in np.flatnonzero((arrived_s - free_s) * emulation.slow_down > MIN_WAIT_S).tolist():
            send = int(dependencies.send[messages[number]])
            size = float(timeline.num_bytes[send])
            held_s = float(dependencies.latency_s[messages[number]])
            taken_s = (timeline.end_s[send] - timeline.start_s[send] - held_s) * emulation.slow_down
            if size >= MIN_BYTES and taken_s > 0:
                link = int(program.device_of[send]), int(program.peer[send])
                moved, best = fastest.get(link, (0.0, 0.0))
                fastest[link] = moved + size / len(timelines), max(best, size / taken_s)
    return fastest


def _free_s(timeline: Timeline, actions: Ints) -> Floats:
    """Return when the device of each compute action had ended the previous one; 0 for the first of a device."""
    program = timeline.program
    index = np.where(timeline.is_compute, np.arange(program.num_actions), -1)
    before = np.concatenate([[-1], np.maximum.accumulate(index)[:-1]])[actions]
    first = program.offsets[program.device_of[actions]]
    return np.where(before >= first, timeline.end_s[before], 0.0)
