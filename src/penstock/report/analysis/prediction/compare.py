"""Comparison of a predicted timeline with measured timelines of the same program, action by action."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program import RECV_KINDS, Kind
from penstock.report.analysis.prediction.slow_links import SlowLink, find_slow_links
from penstock.report.analysis.prediction.stragglers import Straggler, find_stragglers
from penstock.timeline import Timeline, bubble_fraction
from penstock.units import show_percent, show_seconds

MAX_DIFFERENCES = 3
MIN_ITERATIONS_FOR_SPREAD = 4
"""With fewer measured iterations no quartiles are given."""
MIN_DIFFERENCE = 0.005
"""Differences below this share of the iteration are left out."""
MIN_LINK_EXCESS = 0.02
"""Links that cost less than this share of the iteration are left out; so are all if the iteration differs by less."""
MIN_RATIO_ERROR = 0.03
"""Actions whose duration differs from the prediction by less than this ratio are left out."""
AS_PREDICTED = 0.001
"""A smaller relative difference of the iteration counts as none. It would print as 0.0 % or 0.1 %."""
MIN_SHARE_OF_LARGEST = 0.1
"""Differences below this share of the largest one are left out."""
MIN_COMMON_CHANGE = 0.1
COMMON_SPREAD = 0.15
COMMON_SHARE = 0.9
"""All actions share a factor if those with this share of the compute time are within `COMMON_SPREAD` of it."""
EQUAL_PACE = 1.05
"""Replicas whose ratios are within this factor of each other share a row."""


class KindRow(NamedTuple):
    """All actions of one kind and stage, or all optimizer steps of one device.

    Replicas of a stage share a row if they have the same pace. Otherwise each pace has a row of its own.
    """

    kind: Kind
    stage: int | None
    """None for optimizer steps, because a device steps all its stages together."""
    devices: tuple[str, ...]
    num: int
    predicted_s: float
    """Mean seconds of one action."""
    measured_s: float
    """The same, as the median over the measured iterations."""

    @property
    def is_compute(self) -> bool:
        """Whether the actions compute. Measured times of messages are upper limits."""
        return self.kind.is_compute

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s if self.predicted_s > 0 and self.is_compute else None

    @property
    def measured_text(self) -> str:
        """The measured time, or for a message what is known of it.

        >>> KindRow(Kind.SEND_P, 3, ("d2",), 1, 4.7e-4, 0.0).measured_text
        'not waited for'
        """
        if self.is_compute:
            return show_seconds(self.measured_s)
        return f"at most {show_seconds(self.measured_s)}" if self.measured_s > 0 else "not waited for"

    @property
    def excess_s(self) -> float:
        """Measured minus predicted seconds, summed over all actions of the row."""
        return self.num * (self.measured_s - self.predicted_s)


class Comparison(NamedTuple):
    """A predicted iteration beside the measured ones."""

    predicted_s: float
    measured_s: float
    """Of the median iteration (`median_iteration`)."""
    quartiles_s: tuple[float, float]
    num_measured: int
    predicted_bubble: float
    measured_bubble: float
    """Of the median iteration."""
    rows: tuple[KindRow, ...]
    devices: tuple[Straggler, ...]
    """Devices that were slower or faster in all their actions, the largest difference first."""
    links: tuple[SlowLink, ...]
    """Links that made devices wait longer than predicted, the largest excess first."""
    is_warm_up: bool
    """Whether only the first iteration, which is slower than the others, was measured."""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s if self.predicted_s > 0 else None

    @property
    def common_ratio(self) -> float | None:
        """Measured over predicted compute time, if almost all of it differs by about this factor; otherwise None."""
        rows = [row for row in self.rows if row.ratio is not None]
        predicted_s = sum(row.num * row.predicted_s for row in rows)
        if predicted_s <= 0:
            return None
        ratio = sum(row.num * row.measured_s for row in rows) / predicted_s
        alike_s = sum(row.num * row.predicted_s for row in rows if abs((row.ratio or 0.0) / ratio - 1) <= COMMON_SPREAD)
        is_common = abs(ratio - 1) >= MIN_COMMON_CHANGE and alike_s >= COMMON_SHARE * predicted_s
        return ratio if is_common else None


def compare_timelines(predicted: Timeline, measured: Sequence[Timeline]) -> Comparison:
    """Compare a predicted iteration with measured iterations of the same program.

    Args:
        predicted: The simulated timeline.
        measured: The measured timelines, at least one.

    Returns:
        Totals, one row for each kind and stage, and the devices and links that differ from the prediction.
    """
    iterations_s = np.array([timeline.iteration_s for timeline in measured])
    durations = [timeline.end_s - timeline.start_s for timeline in measured]
    predicted_s = predicted.end_s - predicted.start_s
    low, high = np.quantile(iterations_s, (0.25, 0.75)).tolist()
    median = median_iteration(measured)
    return Comparison(
        predicted_s=predicted.iteration_s,
        measured_s=median.iteration_s,
        quartiles_s=(low, high),
        num_measured=len(measured),
        predicted_bubble=bubble_fraction(predicted),
        measured_bubble=bubble_fraction(median),
        rows=tuple(_rows(predicted, predicted_s, durations)),
        devices=find_stragglers(predicted, durations),
        links=find_slow_links(predicted, measured),
        is_warm_up=all(timeline.is_warm_up for timeline in measured),
    )


def median_iteration(measured: Sequence[Timeline]) -> Timeline:
    """The measured iteration with the median time.

    Args:
        measured: The measured timelines, at least one.

    Returns:
        One of them; the faster of the two in the middle for an even number.
    """
    return sorted(measured, key=lambda timeline: timeline.iteration_s)[(len(measured) - 1) // 2]


def _rows(timeline: Timeline, predicted_s: Floats, durations: Sequence[Floats]) -> list[KindRow]:
    program = timeline.program
    groups: dict[tuple[Kind, int], list[int]] = {}
    for action, (kind, stage, device) in enumerate(
        zip(map(Kind, program.kind.tolist()), program.stage.tolist(), program.device_of.tolist(), strict=True)
    ):
        if kind not in RECV_KINDS:  # counted with its send
            groups.setdefault((kind, device if kind == Kind.STEP else stage), []).append(action)
    rows = []
    for (kind, stage), members in sorted(groups.items()):
        is_step = kind == Kind.STEP
        for actions in _by_pace(np.array(members), timeline, predicted_s, durations):
            devices = tuple(program.devices[number] for number in np.unique(program.device_of[actions]).tolist())
            num = 1 if is_step else len(actions)
            measured_s = float(np.median([duration[actions].sum() for duration in durations])) / num
            mean_s = float(predicted_s[actions].sum()) / num
            rows.append(KindRow(kind, None if is_step else stage, devices, num, mean_s, measured_s))
    return rows


def _by_pace(actions: Ints, timeline: Timeline, predicted_s: Floats, durations: Sequence[Floats]) -> list[Ints]:
    """Split the actions of a kind by the pace of their devices. Messages stay together: their pace is not known."""
    device_of = timeline.program.device_of[actions]
    if not timeline.is_compute[actions[0]] or predicted_s[actions].sum() <= 0:
        return [actions]
    ratios = {}
    for device in np.unique(device_of).tolist():
        own = actions[device_of == device]
        measured_s = float(np.median([duration[own].sum() for duration in durations]))
        ratios[device] = measured_s / max(float(predicted_s[own].sum()), 1e-12)
    paces: list[list[int]] = []
    for device, ratio in sorted(ratios.items(), key=lambda item: item[1]):
        if paces and ratio <= EQUAL_PACE * ratios[paces[-1][0]]:
            paces[-1].append(device)
        else:
            paces.append([device])
    return [actions[np.isin(device_of, devices)] for devices in sorted(paces, key=min)]


def difference_sentences(comparison: Comparison, *, single_note: str = "one iteration was measured") -> list[str]:
    """Describe where prediction and measurement differ most.

    Args:
        comparison: The result of `compare_timelines`.
        single_note: The remark in place of the median's spread where there is one iteration only.

    Returns:
        A sentence about the iteration, one if all actions differ by the same factor, then one for each of the largest
        differences.
    """
    if comparison.is_warm_up:
        return [_warm_up_sentence(comparison)]
    low, high = comparison.quartiles_s
    spread = f"median of {comparison.num_measured}, half of them from {show_seconds(low)} to {show_seconds(high)}"
    if comparison.num_measured < MIN_ITERATIONS_FOR_SPREAD:
        spread = f"median of {comparison.num_measured}" if comparison.num_measured > 1 else single_note
    lines = [
        (
            f"An iteration was predicted to take {show_seconds(comparison.predicted_s)} and took "
            f"{show_seconds(comparison.measured_s)}{_change(comparison.ratio)} ({spread}). "
            f"Bubble: predicted {show_percent(comparison.predicted_bubble)}, "
            f"measured {show_percent(comparison.measured_bubble)}."
        )
    ]
    if comparison.common_ratio is not None:
        lines.append(_common_sentence(comparison.common_ratio))
    return [*lines, *_largest(comparison)]


def _common_sentence(ratio: float) -> str:
    reason = "busy, or slower than" if ratio > 1 else "less busy, or faster than"
    return (
        f"All actions took about {ratio:.2f} times as long as predicted: the devices are {reason} when the model was "
        "profiled. Run nothing else at the same time, or profile the model again."
    )


def _warm_up_sentence(comparison: Comparison) -> str:
    return (
        "Only the first iteration was measured, and it includes warm-up: it took "
        f"{show_seconds(comparison.measured_s)} ({show_seconds(comparison.predicted_s)} predicted). "
        "Run more steps to compare."
    )


def _largest(comparison: Comparison) -> list[str]:
    """The largest differences: devices as a whole, links, and kinds of actions on other devices."""
    least_s = MIN_LINK_EXCESS * comparison.predicted_s
    common = comparison.common_ratio
    # Where the iteration took about as long as predicted, no link made it longer.
    links = comparison.links if abs(comparison.measured_s - comparison.predicted_s) >= least_s else ()
    stragglers = {item.device for item in comparison.devices}
    differing = [
        *((item.excess_s, item.sentence) for item in comparison.devices if common is None),
        *((item.excess_s, item.sentence) for item in links if item.excess_s >= least_s),
    ]
    for row in comparison.rows if common is None else ():
        if row.ratio is not None and abs(row.ratio - 1) > MIN_RATIO_ERROR and not stragglers.issuperset(row.devices):
            differing.append((row.excess_s, _row_sentence(row)))
    differing.sort(key=lambda item: -abs(item[0]))
    least = MIN_DIFFERENCE * comparison.predicted_s
    if differing:
        least = max(least, MIN_SHARE_OF_LARGEST * abs(differing[0][0]))
    return [text for excess_s, text in differing[:MAX_DIFFERENCES] if abs(excess_s) >= least]


def _row_sentence(row: KindRow) -> str:
    times = f", {row.num} times an iteration" if row.num > 1 else ""
    name = row_name(row)
    return (
        f"{name[0].upper()}{name[1:]} on {', '.join(row.devices)} took {show_seconds(row.measured_s)} instead of "
        f"{show_seconds(row.predicted_s)}{times}: {show_seconds(abs(row.excess_s))} "
        f"{'more' if row.excess_s > 0 else 'less'} in total."
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
    Kind.GATHER_P: "all-gather of a group's parameters",
}


def row_name(row: KindRow) -> str:
    """The kind of the actions and their stage, such as "backward of stage 1"."""
    if row.stage is None:
        return KIND_NAMES[row.kind]
    return f"{KIND_NAMES[row.kind]} {'' if row.kind == Kind.REDUCE_TIE else 'of stage '}{row.stage}"


def _change(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if abs(ratio - 1) < AS_PREDICTED:
        return ", as predicted"
    return f", {show_percent(abs(ratio - 1))} {'more' if ratio >= 1 else 'less'}"
