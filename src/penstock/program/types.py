"""A program: for each device its actions in order. Millions of them, so they are kept as arrays."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from penstock import io
from penstock.arrays import Int8s, Int32s, Ints
from penstock.errors import InputError
from penstock.plan import Plan
from penstock.program.actions import NONE, Action, Kind, parse_action

FORMAT = "penstock.program/2"


@dataclass(frozen=True, eq=False)
class Program:
    """Actions of all devices, device after device; those of device d are at offsets[d] up to offsets[d + 1].

    `peer` is a place in `devices`, or NONE. A program with compute actions only becomes a lowered one, with sends,
    receives, reductions and steps, through `penstock.lower`.
    """

    plan: Plan
    devices: tuple[str, ...]
    offsets: Ints
    kind: Int8s
    stage: Int32s
    microbatch: Int32s
    peer: Int32s

    @property
    def num_actions(self) -> int:
        """How many actions all devices have together."""
        return len(self.kind)

    @cached_property
    def is_lowered(self) -> bool:
        """Whether it has more than compute actions."""
        return bool((self.kind >= Kind.STEP).any())

    @cached_property
    def device_of(self) -> Int32s:
        """The device of each action."""
        return np.repeat(np.arange(len(self.devices), dtype=np.int32), np.diff(self.offsets))

    def action(self, place: int) -> Action:
        """The action at a place in the arrays."""
        peer = int(self.peer[place])
        name = self.devices[peer] if peer != NONE else ""
        return Action(Kind(int(self.kind[place])), int(self.stage[place]), int(self.microbatch[place]), name)

    def actions(self, device: str) -> Iterator[Action]:
        """The actions of one device, in order."""
        number = self.devices.index(device)
        return (self.action(place) for place in range(int(self.offsets[number]), int(self.offsets[number + 1])))

    def name(self, place: int) -> str:
        """The action at a place and its device, for messages."""
        return f"{self.action(place)} on {self.devices[int(self.device_of[place])]}"

    def same_actions(self, other: "Program") -> bool:
        """Whether both have the same actions in the same order on the same devices."""
        return self.devices == other.devices and all(
            np.array_equal(getattr(self, field), getattr(other, field))
            for field in ("offsets", "kind", "stage", "microbatch", "peer")
        )


def program_from_arrays(
    plan: Plan,
    devices: Sequence[str],
    counts: npt.ArrayLike,
    kind: npt.ArrayLike,
    stage: npt.ArrayLike,
    microbatch: npt.ArrayLike,
    peer: npt.ArrayLike | None = None,
) -> Program:
    """A program from arrays in device order; `counts` says how many actions each device has."""
    kinds = np.asarray(kind, dtype=np.int8)
    peers = np.full(len(kinds), NONE, dtype=np.int32) if peer is None else np.asarray(peer, dtype=np.int32)
    arrays = (
        np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))]).astype(np.int64),
        kinds,
        np.asarray(stage, dtype=np.int32),
        np.asarray(microbatch, dtype=np.int32),
        peers,
    )
    for array in arrays:
        array.setflags(write=False)
    return Program(plan, tuple(devices), *arrays)


def program_from_actions(plan: Plan, devices: Sequence[str], orders: Iterable[Iterable[Action]]) -> Program:
    """A program from lists of actions, one list a device."""
    lists = [list(order) for order in orders]
    flat = [action for order in lists for action in order]
    places = {name: place for place, name in enumerate(devices)}
    return program_from_arrays(
        plan,
        devices,
        [len(order) for order in lists],
        [action.kind for action in flat],
        [action.stage for action in flat],
        [action.microbatch for action in flat],
        [places[action.peer] if action.peer else NONE for action in flat],
    )


class DeviceActions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device's line in a program file."""

    device: str
    actions: tuple[str, ...]


class ProgramFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A program as a file: the plan it is for, and every device's actions in order."""

    format: str = FORMAT
    plan: Plan
    devices: tuple[DeviceActions, ...]


def save_program(program: Program, path: str | Path) -> None:
    """Write a program file, whole or not at all."""
    io.write_whole(path, encode_program(program))


def encode_program(program: Program) -> bytes:
    """The program as it is written."""
    rows = [DeviceActions(name, tuple(map(str, program.actions(name)))) for name in program.devices]
    return io.encode_json(ProgramFile(plan=program.plan, devices=tuple(rows)))


def load_program(path: str | Path) -> Program:
    """Read a program file."""
    where = str(path)
    found = io.decode_json(io.read_bytes(path), ProgramFile, where=where, expected_format=FORMAT)
    names = [row.device for row in found.devices]
    if len(set(names)) != len(names):
        raise InputError("a device is there twice", where=f"{where}, at $.devices")
    known = set(names)
    orders: list[list[Action]] = []
    for number, row in enumerate(found.devices):
        orders.append([])
        for place, text in enumerate(row.actions):
            at = f"{where}, at $.devices[{number}].actions[{place}]"
            action = parse_action(text, where=at)
            if action.peer and action.peer not in known:
                raise InputError(f"{text!r}: there is no device {action.peer!r}", where=at)
            orders[-1].append(action)
    return program_from_actions(found.plan, names, orders)
