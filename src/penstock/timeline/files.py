"""The timeline file, which can be read without Penstock (docs/formats.md)."""

import math
from pathlib import Path

import msgspec
import numpy as np

from penstock import io
from penstock.errors import InputError
from penstock.plan import Plan
from penstock.program import NONE, Action, parse_action, program_from_actions
from penstock.timeline.summary import critical_path, device_uses, waits
from penstock.timeline.types import Timeline

FORMAT = "penstock.timeline/2"

Place = tuple[str, int]
"""A device and the number of an action in its order."""


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One action: its times (or those of its transfer), bytes, the memory of its device, and its cause."""

    action: str
    start_s: float
    end_s: float
    memory_during: float
    memory_after: float
    num_bytes: float = 0.0
    cause: Place | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.start_s < math.inf and 0 <= self.end_s < math.inf):
            raise ValueError("start_s and end_s must be finite and not negative")
        if self.end_s < self.start_s:
            raise ValueError(f"{self.action!r} ends before it starts")


class DeviceTimeline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device: its events in program order, and their summary."""

    device: str
    busy_s: float
    bubble_s: float
    inner_bubble_s: float
    events: tuple[Event, ...]


class WaitEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wait of a device before one of its actions: its cause, and the duration of the transfer."""

    device: str
    action: int
    start_s: float
    end_s: float
    transfer_s: float
    cause: Place | None


class TimelineFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A timeline file. Bubbles, waits and the critical path follow from the events and are included for readers."""

    format: str = FORMAT
    origin: str
    iteration_s: float
    plan: Plan
    devices: tuple[DeviceTimeline, ...]
    waits: tuple[WaitEntry, ...] = ()
    critical_path: tuple[Place, ...] = ()
    is_warm_up: bool | msgspec.UnsetType = msgspec.UNSET


def save_timeline(timeline: Timeline, path: str | Path) -> None:
    """Write a timeline file, atomically."""
    io.write_whole(path, encode_timeline(timeline))


def encode_timeline(timeline: Timeline) -> bytes:
    """The contents of a timeline file."""
    return msgspec.json.encode(timeline_file(timeline)) + b"\n"


def timeline_file(timeline: Timeline) -> TimelineFile:
    """The contents of a timeline file."""
    program = timeline.program
    device_of = program.device_of.tolist()
    offsets = program.offsets.tolist()

    def index(action: int) -> Place | None:
        return None if action == NONE else (program.devices[device_of[action]], action - offsets[device_of[action]])

    uses = {use.device: use for use in device_uses(timeline)}
    columns = zip(
        timeline.start_s.tolist(),
        timeline.end_s.tolist(),
        timeline.memory_during.tolist(),
        timeline.memory_after.tolist(),
        timeline.num_bytes.tolist(),
        timeline.cause.tolist(),
        strict=True,
    )
    devices = []
    for name in program.devices:
        events = tuple(
            Event(str(action), start, end, during, after, num_bytes, index(cause))
            for action, (start, end, during, after, num_bytes, cause) in zip(
                program.actions(name), columns, strict=False
            )
        )
        use = uses.get(name)
        totals = (use.busy_s, use.bubble_s, use.inner_bubble_s) if use else (0.0, timeline.iteration_s, 0.0)
        devices.append(DeviceTimeline(name, *totals, events))
    return TimelineFile(
        origin=timeline.origin,
        iteration_s=timeline.iteration_s,
        plan=program.plan,
        devices=tuple(devices),
        waits=tuple(
            WaitEntry(
                wait.device,
                wait.action - offsets[device_of[wait.action]],
                wait.start_s,
                wait.end_s,
                wait.transfer_s,
                index(wait.cause),
            )
            for wait in waits(timeline)
        ),
        critical_path=tuple(found for found in map(index, critical_path(timeline)) if found is not None),
        is_warm_up=True if timeline.is_warm_up else msgspec.UNSET,
    )


def load_timeline(path: str | Path) -> Timeline:
    """Read a timeline file.

    Raises:
        FileError: The file cannot be read.
        InputError: The file is not a valid timeline.
    """
    where = str(path)
    found = io.decode_json(io.read_bytes(path), TimelineFile, where=where, expected_format=FORMAT)
    names = [row.device for row in found.devices]
    if len(set(names)) != len(names):
        raise InputError("duplicate device", where=f"{where}, at $.devices")
    begins = dict(zip(names, np.cumsum([0] + [len(row.events) for row in found.devices]).tolist(), strict=False))
    counts = {row.device: len(row.events) for row in found.devices}
    orders: list[list[Action]] = []
    causes: list[int] = []
    for number, row in enumerate(found.devices):
        orders.append([])
        for event_number, event in enumerate(row.events):
            at = f"{where}, at $.devices[{number}].events[{event_number}]"
            action = parse_action(event.action, where=at)
            if action.peer and action.peer not in counts:
                raise InputError(f"{event.action!r}: device {action.peer!r} does not exist", where=at)
            orders[-1].append(action)
            if event.cause is None:
                causes.append(NONE)
                continue
            device, index = event.cause
            if device not in counts or not 0 <= index < counts[device]:
                raise InputError(f"the cause ({device!r}, {index}) does not exist", where=at)
            causes.append(begins[device] + index)
    if _has_circle(causes):
        raise InputError("the causes form a cycle", where=f"{where}, at $.devices")
    events = [event for row in found.devices for event in row.events]
    return Timeline(
        program=program_from_actions(found.plan, names, orders),
        origin=found.origin,
        start_s=np.array([event.start_s for event in events]),
        end_s=np.array([event.end_s for event in events]),
        num_bytes=np.array([event.num_bytes for event in events]),
        memory_during=np.array([event.memory_during for event in events]),
        memory_after=np.array([event.memory_after for event in events]),
        cause=np.array(causes, dtype=np.int64),
        is_warm_up=found.is_warm_up is True,
    )


def _has_circle(causes: list[int]) -> bool:
    """Whether the causes form a cycle. Every round doubles the distance that is followed."""
    reached = np.append(np.array(causes, dtype=np.int64), NONE)
    for _ in range(len(causes).bit_length()):
        reached = reached[reached]
    return bool((reached != NONE).any())
