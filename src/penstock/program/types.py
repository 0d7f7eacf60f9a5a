"""`Program`: the actions of every device in order, kept as arrays. Also the program file."""

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
from penstock.program.actions import NONE, Action, Kind, is_pass, parse_action

FORMAT = "penstock.program/2"


@dataclass(frozen=True, eq=False)
class Program:
    """The actions of all devices, device after device.

    The actions of device d have the indices offsets[d] up to offsets[d + 1]. `penstock.lower` adds sends, receives,
    reductions and optimizer steps to a program of passes.

    Attributes:
        plan: The plan that the program is for.
        devices: The names of the devices.
        offsets: The index of each device's first action, and the number of all actions.
        kind: The kind of each action.
        stage: The stage of each action.
        microbatch: The micro-batch of each action, or NONE.
        peer: The index in `devices` of the other end of a send or receive, or NONE.
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
        """The number of actions of all devices."""
        return len(self.kind)

    @cached_property
    def is_lowered(self) -> bool:
        """Whether it has more than passes."""
        return bool((~is_pass(self.kind)).any())

    @cached_property
    def device_of(self) -> Int32s:
        """The device of each action."""
        return np.repeat(np.arange(len(self.devices), dtype=np.int32), np.diff(self.offsets))

    def rows_of(self, *kinds: Kind) -> Ints:
        """The indices of the actions of some kinds, in the order of the program."""
        order, begin = self._by_kind
        parts = [order[begin[kind] : begin[kind + 1]] for kind in map(int, kinds) if begin[kind] < begin[kind + 1]]
        if len(parts) > 1:
            return np.sort(np.concatenate(parts))
        return parts[0] if parts else order[:0]

    @cached_property
    def _by_kind(self) -> tuple[Ints, list[int]]:
        """The actions sorted by kind, and where each kind begins."""
        order = np.argsort(self.kind, kind="stable")
        order.setflags(write=False)
        return order, np.searchsorted(self.kind[order], np.arange(len(Kind) + 1)).tolist()

    def action(self, index: int) -> Action:
        """The action at an index."""
        peer = int(self.peer[index])
        name = self.devices[peer] if peer != NONE else ""
        return Action(Kind(int(self.kind[index])), int(self.stage[index]), int(self.microbatch[index]), name)

    def actions(self, device: str) -> Iterator[Action]:
        """The actions of one device, in order."""
        number = self.devices.index(device)
        return (self.action(index) for index in range(int(self.offsets[number]), int(self.offsets[number + 1])))

    def name(self, index: int) -> str:
        """The action at an index and its device, for messages."""
        return f"{self.action(index)} on {self.devices[int(self.device_of[index])]}"

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
    """A program from arrays in device order; `counts` are the actions per device."""
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
    """A program from lists of actions, one list per device."""
    lists = [list(order) for order in orders]
    flat = [action for order in lists for action in order]
    indices = {name: index for index, name in enumerate(devices)}
    return program_from_arrays(
        plan,
        devices,
        [len(order) for order in lists],
        [action.kind for action in flat],
        [action.stage for action in flat],
        [action.microbatch for action in flat],
        [indices[action.peer] if action.peer else NONE for action in flat],
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
    """Write a program file, atomically."""
    io.write_whole(path, encode_program(program))


def encode_program(program: Program) -> bytes:
    """The contents of a program file."""
    rows = [DeviceActions(name, tuple(map(str, program.actions(name)))) for name in program.devices]
    return io.encode_json(ProgramFile(plan=program.plan, devices=tuple(rows)))


def load_program(path: str | Path) -> Program:
    """Read a program file.

    Raises:
        FileError: The file cannot be read.
        InputError: The file is not a valid program.
    """
    where = str(path)
    found = io.decode_json(io.read_bytes(path), ProgramFile, where=where, expected_format=FORMAT)
    names = [row.device for row in found.devices]
    if len(set(names)) != len(names):
        raise InputError("duplicate device", where=f"{where}, at $.devices")
    known = set(names)
    orders: list[list[Action]] = []
    for number, row in enumerate(found.devices):
        orders.append([])
        for index, text in enumerate(row.actions):
            at = f"{where}, at $.devices[{number}].actions[{index}]"
            action = parse_action(text, where=at)
            if action.peer and action.peer not in known:
                raise InputError(f"{text!r}: device {action.peer!r} does not exist", where=at)
            orders[-1].append(action)
    return program_from_actions(found.plan, names, orders)
