"""Predicted against measured: the same program's timeline twice, action by action."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program import RECV_KINDS, Kind
from penstock.report.analysis.prediction.slow_links import SlowLink, slow_links
from penstock.report.analysis.prediction.stragglers import DraggingDevice, dragging_devices
from penstock.timeline import Timeline, bubble_fraction
from penstock.units import show_percent, show_seconds

MOST_TOLD = 3
FEWEST_SPREAD = 4
"""Fewer measurements say nothing about how they spread."""
LEAST_TOLD = 0.005
"""Differences below this share of the iteration are not worth a word."""
LEAST_LINK = 0.02
"""Nor are links that cost less than this share of it, or where the whole iteration is off by less."""
LEAST_OFF = 0.03
"""Nor are jobs that took about as long as predicted."""
AS_PREDICTED = 0.001
"""A difference below this is none: it would show as 0.0 % or 0.1 %."""
BESIDE_LARGEST = 0.1
"""Nor are those below this share of the largest difference."""
ALIKE = 1.05
"""Devices of a group whose ratios are within this of each other are taken together."""


class KindRow(NamedTuple):
    """All actions of one kind of one stage (the optimizer's: of one device), one taken as another.

    Devices that share a stage have one row if they kept up with each other, else one for each pace.
    """

    kind: Kind
    stage: int | None
    """None for the optimizer's steps: a device takes all its stages' together."""
    devices: tuple[str, ...]
    num: int
    predicted_s: float
    """Of one action, on average."""
    measured_s: float
    """The same, in the median of the measured iterations."""

    @property
    def is_compute(self) -> bool:
        """Whether it keeps its device busy. Messages are seen only when they are needed: that is the most they took."""
        return self.kind <= Kind.STEP

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s if self.predicted_s > 0 and self.is_compute else None

    @property
    def measured_in_words(self) -> str:
        """The measured time; of a message what is known of it, which is nothing where nobody waited for it.

        >>> KindRow(Kind.SEND_P, 3, ("d2",), 1, 4.7e-4, 0.0).measured_in_words
        'not waited for'
        """
        if self.is_compute:
            return show_seconds(self.measured_s)
        return f"at most {show_seconds(self.measured_s)}" if self.measured_s > 0 else "not waited for"

    @property
    def excess_s(self) -> float:
        """By how much all of them together took longer."""
        return self.num * (self.measured_s - self.predicted_s)


class Comparison(NamedTuple):
    """What was predicted and what happened."""

    predicted_s: float
    measured_s: float
    """An iteration, in the median."""
    quartiles_s: tuple[float, float]
    num_measured: int
    predicted_bubble: float
    measured_bubble: float
    rows: tuple[KindRow, ...]
    devices: tuple[DraggingDevice, ...]
    """Those that were slow, or fast, in all that they did; the worst first."""
    links: tuple[SlowLink, ...]
    """Those that kept somebody waiting for longer than predicted; the worst first."""
    is_warm_up: bool
    """Whether no other iteration was measured than one that warms up: then it says little."""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s if self.predicted_s > 0 else None


def compare_timelines(predicted: Timeline, measured: Sequence[Timeline]) -> Comparison:
    """Compare a predicted iteration with measured ones of the same program."""
    took = np.array([timeline.iteration_s for timeline in measured])
    durations = [timeline.end_s - timeline.start_s for timeline in measured]
    foreseen = predicted.end_s - predicted.start_s
    low, high = np.quantile(took, (0.25, 0.75)).tolist()
    return Comparison(
        predicted_s=predicted.iteration_s,
        measured_s=float(np.median(took)),
        quartiles_s=(low, high),
        num_measured=len(measured),
        predicted_bubble=bubble_fraction(predicted),
        measured_bubble=float(np.median([bubble_fraction(timeline) for timeline in measured])),
        rows=tuple(_rows(predicted, foreseen, durations)),
        devices=dragging_devices(predicted, durations),
        links=slow_links(predicted, measured),
        is_warm_up=all(timeline.is_warm_up for timeline in measured),
    )


def typical(measured: Sequence[Timeline]) -> Timeline:
    """The measured iteration in the middle, by its time."""
    return sorted(measured, key=lambda timeline: timeline.iteration_s)[(len(measured) - 1) // 2]


def _rows(timeline: Timeline, foreseen: Floats, durations: Sequence[Floats]) -> list[KindRow]:
    program = timeline.program
    groups: dict[tuple[Kind, int], list[int]] = {}
    for action, (kind, stage, device) in enumerate(
        zip(map(Kind, program.kind.tolist()), program.stage.tolist(), program.device_of.tolist(), strict=True)
    ):
        if kind not in RECV_KINDS:  # the other end of a send that is counted
            groups.setdefault((kind, device if kind == Kind.STEP else stage), []).append(action)
    found = []
    for (kind, stage), members in sorted(groups.items()):
        is_step = kind == Kind.STEP
        for at in _alike(np.array(members), timeline, foreseen, durations):
            devices = tuple(program.devices[number] for number in np.unique(program.device_of[at]).tolist())
            num = 1 if is_step else len(at)
            measured_s = float(np.median([taken[at].sum() for taken in durations])) / num
            predicted_s = float(foreseen[at].sum()) / num
            found.append(KindRow(kind, None if is_step else stage, devices, num, predicted_s, measured_s))
    return found


def _alike(members: Ints, timeline: Timeline, foreseen: Floats, durations: Sequence[Floats]) -> list[Ints]:
    """The actions of a kind, by the pace of their devices. That of messages is not known: they stay together."""
    where = timeline.program.device_of[members]
    if not timeline.is_compute[members[0]] or foreseen[members].sum() <= 0:
        return [members]
    ratios = {}
    for device in np.unique(where).tolist():
        at = members[where == device]
        taken_s = float(np.median([taken[at].sum() for taken in durations]))
        ratios[device] = taken_s / max(float(foreseen[at].sum()), 1e-12)
    paces: list[list[int]] = []
    for device, ratio in sorted(ratios.items(), key=lambda item: item[1]):
        if paces and ratio <= ALIKE * ratios[paces[-1][0]]:
            paces[-1].append(device)
        else:
            paces.append([device])
    return [members[np.isin(where, devices)] for devices in sorted(paces, key=min)]


def difference_sentences(found: Comparison, *, of_one: str = "one iteration was measured") -> list[str]:
    """Where prediction and measurement differ most, in words; `of_one` is said where there is no median."""
    if found.is_warm_up:
        return [_warm_up_sentence(found)]
    low, high = found.quartiles_s
    spread = f"median of {found.num_measured}, half of them from {show_seconds(low)} to {show_seconds(high)}"
    if found.num_measured < FEWEST_SPREAD:
        spread = f"median of {found.num_measured}" if found.num_measured > 1 else of_one
    lines = [
        (
            f"An iteration was predicted to take {show_seconds(found.predicted_s)} and took "
            f"{show_seconds(found.measured_s)}{_change(found.ratio)} ({spread}). "
            f"Bubble: predicted {show_percent(found.predicted_bubble)}, measured {show_percent(found.measured_bubble)}."
        )
    ]
    return [*lines, *_largest(found)]


def _warm_up_sentence(found: Comparison) -> str:
    return (
        f"Only the first iteration was measured, which warms up: that it took {show_seconds(found.measured_s)}, where "
        f"{show_seconds(found.predicted_s)} were predicted, says little of how long others take. Run more steps."
    )


def _largest(found: Comparison) -> list[str]:
    """What differs most: devices in all that they did, links, and else kinds of jobs."""
    least_s = LEAST_LINK * found.predicted_s
    # Links that made nothing longer are not to blame, for anything.
    links = found.links if abs(found.measured_s - found.predicted_s) >= least_s else ()
    whole = {item.device for item in found.devices}
    differing = [
        *((item.excess_s, item.in_words) for item in found.devices),
        *((item.excess_s, item.in_words) for item in links if item.excess_s >= least_s),
    ]
    for row in found.rows:
        if row.ratio is not None and abs(row.ratio - 1) > LEAST_OFF and not whole.issuperset(row.devices):
            differing.append((row.excess_s, _row_words(row)))
    differing.sort(key=lambda item: -abs(item[0]))
    least = LEAST_TOLD * found.predicted_s
    if differing:
        least = max(least, BESIDE_LARGEST * abs(differing[0][0]))
    return [text for excess_s, text in differing[:MOST_TOLD] if abs(excess_s) >= least]


def _row_words(row: KindRow) -> str:
    times = f", {row.num} times an iteration" if row.num > 1 else ""
    name = row_name(row)
    return (
        f"{name[0].upper()}{name[1:]} on {', '.join(row.devices)} took {show_seconds(row.measured_s)}, not "
        f"{show_seconds(row.predicted_s)}{times}: {show_seconds(abs(row.excess_s))} "
        f"{'more' if row.excess_s > 0 else 'less'} in all."
    )


KIND_NAMES = {
    Kind.F: "forward",
    Kind.R: "recomputation",
    Kind.B: "backward",
    Kind.I: "input gradient",
    Kind.W: "weight gradient",
    Kind.STEP: "optimizer step",
    Kind.SEND_F: "activations sent",
    Kind.SEND_B: "gradients sent",
    Kind.SEND_S: "saved tensors sent",
    Kind.SEND_P: "parameters sent",
    Kind.REDUCE_GRAD: "all-reduce of a group",
    Kind.REDUCE_TIE: "all-reduce of shared parameters",
}


def row_name(row: KindRow) -> str:
    """The kind of work, and of which stage."""
    if row.stage is None:
        return KIND_NAMES[row.kind]
    return f"{KIND_NAMES[row.kind]} {'' if row.kind == Kind.REDUCE_TIE else 'of stage '}{row.stage}"


def _change(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if abs(ratio - 1) < AS_PREDICTED:
        return ", as predicted"
    return f", {show_percent(abs(ratio - 1))} {'more' if ratio >= 1 else 'less'}"
