"""Whether an emulation shows the plan, or this machine: said in words where it is the machine."""

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.emulation.clock import Lateness
from penstock.emulation.network import Network
from penstock.emulation.spec import Emulation
from penstock.timeline import Timeline
from penstock.units import show_percent, show_rate, show_seconds

MOST_BUSY = 0.7
MOST_LATE = 0.02
"""Of a job."""
MOST_OVERRUN = 0.01
"""Of an iteration."""
MOST_LACKING = 0.02
"""Of an iteration."""
SURE_RATE = 200e6
"""Bytes a second that a link reaches on any machine that is not busy."""
LEAST_BYTES = 1e6
"""Smaller messages take about as long as any, and tell nothing of a link."""
LEAST_WAIT_S = 1e-2
"""Here; a device that was idle for so long when a message came has waited for it."""


def find_limits(
    emulation: Emulation, timelines: Sequence[Timeline], busy: Sequence[float], lateness: Sequence[Sequence[Lateness]]
) -> list[str]:
    """What kept this machine from keeping up, if something did; by iteration and, within, by rank."""
    found = [_busy(busy), _late(lateness), _overrun(emulation, timelines, lateness)]
    if emulation.is_shaped:
        found.append(_lacking(emulation, timelines))
    return [text for text in found if text]


def _busy(busy: Sequence[float]) -> str:
    most = max(busy, default=0.0)
    return f"the ranks kept this machine's processors {show_percent(most)} busy" if most > MOST_BUSY else ""


def _late(lateness: Sequence[Sequence[Lateness]]) -> str:
    ranks = [item for ranks in lateness for item in ranks if item.asleep_s > 0]
    worst = max(ranks, key=lambda item: item.woken_s / item.asleep_s, default=None)
    if worst is None or worst.woken_s <= MOST_LATE * worst.asleep_s:
        return ""
    late, job = worst.woken_s / worst.num_jobs, worst.asleep_s / worst.num_jobs
    return f"a rank woke up {show_seconds(late)} late from jobs of {show_seconds(job)}, on average"


def _overrun(emulation: Emulation, timelines: Sequence[Timeline], lateness: Sequence[Sequence[Lateness]]) -> str:
    worst = max((item.overrun_s for ranks in lateness for item in ranks), default=0.0)
    usual = max((item.iteration_s * emulation.slow_down for item in timelines), default=0.0)
    if not usual or worst <= MOST_OVERRUN * usual:
        return ""
    return f"the runtime took longer than the jobs that it surrounds, by {show_percent(worst / usual)} of an iteration"


def _lacking(emulation: Emulation, timelines: Sequence[Timeline]) -> str:
    """Links that should be faster here than any message was that somebody waited for; what that is worth."""
    network = Network(emulation.cluster, emulation.devices, emulation.slow_down)
    rank_of = {name: rank for rank, name in enumerate(emulation.devices)}
    worst, text = MOST_LACKING, ""
    for (source, target), (moved, best) in _fastest(emulation, timelines).items():
        names = [emulation.cluster.devices[end].name for end in (source, target)]
        rate = network.rate(*(rank_of[name] for name in names))
        if rate <= SURE_RATE or best >= rate:
            continue
        lacking_s = moved * (1 / best - 1 / rate)
        share = lacking_s / (max(item.iteration_s for item in timelines) * emulation.slow_down)
        if share > worst:
            worst = share
            text = (
                f"from {names[0]} to {names[1]} there should be {show_rate(rate)} here, and no message got more than "
                f"{show_rate(best)}, which is worth up to {show_percent(share)} of an iteration"
            )
    return text


def _fastest(emulation: Emulation, timelines: Sequence[Timeline]) -> dict[tuple[int, int], tuple[float, float]]:
    """By link: the bytes that were waited for in an iteration, and the most bytes a second of such a message."""
    wiring = emulation.evaluation.proof.wiring
    messages = np.flatnonzero((wiring.receive >= 0) & (np.diff(wiring.consumers.begin) > 0))
    users = wiring.consumers.values[wiring.consumers.begin[messages]]
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for timeline in timelines:
        program = timeline.program
        came_s = timeline.end_s[wiring.send[messages]]
        free_s = _free_s(timeline, users)
        # A device asks for one message after the other: those that were there before are found at the same time.
        order = np.lexsort((came_s, users))
        same = np.flatnonzero(users[order[1:]] == users[order[:-1]])
        free_s[order[same + 1]] = np.maximum(free_s[order[same + 1]], came_s[order[same]])
        for number in np.flatnonzero((came_s - free_s) * emulation.slow_down > LEAST_WAIT_S).tolist():
            send = int(wiring.send[messages[number]])
            size = float(timeline.num_bytes[send])
            held_s = float(wiring.latency_s[messages[number]])
            taken_s = (timeline.end_s[send] - timeline.start_s[send] - held_s) * emulation.slow_down
            if size >= LEAST_BYTES and taken_s > 0:
                link = int(program.device_of[send]), int(program.peer[send])
                moved, best = found.get(link, (0.0, 0.0))
                found[link] = moved + size / len(timelines), max(best, size / taken_s)
    return found


def _free_s(timeline: Timeline, actions: Ints) -> Floats:
    """When the device of each compute action had done the one before it; the start for those without one before."""
    program = timeline.program
    place = np.where(timeline.is_compute, np.arange(program.num_actions), -1)
    before = np.concatenate([[-1], np.maximum.accumulate(place)[:-1]])[actions]
    first = program.offsets[program.device_of[actions]]
    return np.where(before >= first, timeline.end_s[before], 0.0)
