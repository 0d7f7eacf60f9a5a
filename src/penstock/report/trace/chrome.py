"""A timeline as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing.

Every device is a process with one row for its compute actions, one for the sends to each other device and one for its
reductions. A counter shows its memory. Arrows lead from each send to the compute action that consumes the payload.
"""

from pathlib import Path

import msgspec
import numpy as np

from penstock import io
from penstock.arrays import Ints
from penstock.program import NONE, Kind, sends_and_consumers
from penstock.report.analysis import validate_timeline
from penstock.report.trace.rows import TraceRows, trace_rows
from penstock.timeline import Timeline

MAX_SECONDS = 2**50 / 1e9
"""Traces store microseconds as floats. Up to this time (13 days) every nanosecond has its own value."""

_CONTENTS = {Kind.SEND_F: "activations", Kind.SEND_B: "gradients", Kind.SEND_S: "saved tensors"}


class _Args(msgspec.Struct, omit_defaults=True, gc=False):
    """The arguments that a viewer shows for a selected event."""

    name: str | None = None
    sort_index: int | None = None
    stage: int | None = None
    microbatch: int | None = None
    num_bytes: float | None = None
    memory_bytes: float | None = None


class _Event(msgspec.Struct, omit_defaults=True, gc=False):
    """An event of any phase, with the field names of the format."""

    ph: str
    name: str
    pid: int
    tid: int
    ts: float
    dur: float | None = None
    cat: str | None = None
    id: int | None = None
    bp: str | None = None
    args: _Args | None = None


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815
    otherData: dict[str, str]  # noqa: N815
    displayTimeUnit: str = "ms"  # noqa: N815


class _Events:
    """Events with their times, sorted at the end."""

    def __init__(self) -> None:
        self.events: list[_Event] = []
        self.times: list[Ints] = []

    def add(self, events: list[_Event], at_ns: Ints) -> None:
        self.events += events
        self.times.append(at_ns)

    def in_order(self) -> list[_Event]:
        """All events by time. Events at one time keep their order: a slice comes before the arrows to it."""
        order = np.argsort(np.concatenate(self.times), kind="stable")
        return [self.events[index] for index in order.tolist()]


def save_trace(timeline: Timeline, path: str | Path) -> None:
    """Write a Chrome trace atomically."""
    io.write_whole(path, chrome_trace(timeline))


def chrome_trace(timeline: Timeline) -> bytes:
    """Encode a timeline in the Trace Event Format.

    Args:
        timeline: A simulated or measured timeline.

    Returns:
        A JSON object.

    Raises:
        InputError: The timeline has times or sizes that a trace cannot hold.
    """
    validate_timeline(timeline, max_seconds=MAX_SECONDS)
    # Whole nanoseconds, so that rounding does not make consecutive slices overlap.
    start_ns, end_ns = (np.rint(times * 1e9).astype(np.int64) for times in (timeline.start_s, timeline.end_s))
    rows = trace_rows(timeline.program, start_ns, end_ns)
    events = _Events()
    _add_names(events, timeline, rows)
    _add_slices(events, timeline, rows, start_ns, end_ns)
    _add_flows(events, timeline, rows, start_ns)
    _add_memory(events, timeline, start_ns, end_ns)
    plan = timeline.program.plan
    about = {"origin": timeline.origin, "planner": plan.planner, "schedule": plan.schedule}
    return msgspec.json.encode(_Trace(events.in_order(), about)) + b"\n"


def _add_names(events: _Events, timeline: Timeline, rows: TraceRows) -> None:
    names = []
    for device in np.unique(timeline.program.device_of).tolist():
        name, position = _Args(name=timeline.program.devices[device]), _Args(sort_index=device)
        names.append(_Event("M", "process_name", device + 1, 0, 0.0, args=name))
        names.append(_Event("M", "process_sort_index", device + 1, 0, 0.0, args=position))
    for number, row in enumerate(rows.rows):
        name, position = _Args(name=row.name), _Args(sort_index=number)
        names.append(_Event("M", "thread_name", row.process_id, row.thread_id, 0.0, args=name))
        names.append(_Event("M", "thread_sort_index", row.process_id, row.thread_id, 0.0, args=position))
    events.add(names, np.zeros(len(names), dtype=np.int64))


def _add_slices(events: _Events, timeline: Timeline, rows: TraceRows, start_ns: Ints, end_ns: Ints) -> None:
    program = timeline.program
    drawn = np.flatnonzero(rows.row_of != NONE)
    slices = []
    for row_number, kind, stage, microbatch, at, length, moved, memory in zip(
        rows.row_of[drawn].tolist(),
        map(Kind, program.kind[drawn].tolist()),
        program.stage[drawn].tolist(),
        program.microbatch[drawn].tolist(),
        microseconds(start_ns[drawn]),
        microseconds(end_ns[drawn] - start_ns[drawn]),
        timeline.num_bytes[drawn].tolist(),
        timeline.memory_during[drawn].tolist(),
        strict=True,
    ):
        row = rows.rows[row_number]
        is_compute = kind.is_compute
        args = _Args(
            stage=None if kind == Kind.REDUCE_TIE else stage,
            microbatch=None if microbatch == NONE else microbatch,
            num_bytes=None if is_compute else moved,
            memory_bytes=memory if is_compute else None,
        )
        name = f"{stage}{kind.name}{'' if microbatch == NONE else microbatch}"
        what = "compute" if is_compute else "transfer" if kind.is_send else "reduction"
        slices.append(_Event("X", name, row.process_id, row.thread_id, at, dur=length, cat=what, args=args))
    events.add(slices, start_ns[drawn])


def _add_flows(events: _Events, timeline: Timeline, rows: TraceRows, start_ns: Ints) -> None:
    kind = timeline.program.kind.tolist()
    pairs = np.column_stack(sends_and_consumers(timeline.program))
    # Clocks of measured devices may disagree, and viewers reject arrows that go back in time.
    pairs = pairs[start_ns[pairs[:, 0]] <= start_ns[pairs[:, 1]]]
    for column, phase, bind in ((0, "s", None), (1, "f", "e")):
        at_ns = start_ns[pairs[:, column]]
        flows = []
        for number, (send, row_number, at) in enumerate(
            zip(
                pairs[:, 0].tolist(),
                rows.row_of[pairs[:, column]].tolist(),
                microseconds(at_ns),
                strict=True,
            )
        ):
            row, name = rows.rows[row_number], _CONTENTS[Kind(kind[send])]
            flows.append(_Event(phase, name, row.process_id, row.thread_id, at, cat="flow", id=number + 1, bp=bind))
        events.add(flows, at_ns)


def _add_memory(events: _Events, timeline: Timeline, start_ns: Ints, end_ns: Ints) -> None:
    """The memory of each device at every change. Payloads count from the start of their action."""
    program = timeline.program
    for device, (first, last) in enumerate(
        zip(program.offsets[:-1].tolist(), program.offsets[1:].tolist(), strict=True)
    ):
        if first == last:
            continue
        is_compute = timeline.is_compute[first:last]
        begins, ends = (np.where(is_compute, times[first:last], 0) for times in (start_ns, end_ns))
        at_ns = np.maximum.accumulate(np.column_stack([begins, ends]).ravel())
        used = np.column_stack([timeline.memory_during[first:last], timeline.memory_after[first:last]]).ravel()
        changes = np.flatnonzero(np.concatenate([[True], used[1:] != used[:-1]]))
        counters = [
            _Event("C", "memory", device + 1, 0, at, args=_Args(memory_bytes=value))
            for at, value in zip(microseconds(at_ns[changes]), used[changes].tolist(), strict=True)
        ]
        events.add(counters, at_ns[changes])


def microseconds(time_ns: Ints) -> list[float]:
    """Convert nanoseconds to microseconds so that viewers that multiply by 1000 and truncate get them back.

    >>> [int(value * 1000) for value in microseconds(np.array([0, 1001, 4_019]))]
    [0, 1001, 4019]
    """
    value = time_ns / 1000.0
    short = np.floor(value * 1000.0) < time_ns
    value[short] = np.nextafter(value[short], np.inf)
    return [float(at) for at in value.tolist()]
