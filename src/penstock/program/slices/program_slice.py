"""`ProgramSlice`: what one device needs of a lowered program, so that it does not need the rest.

A slice holds the actions of its device, and three facts about the others: which links the program uses, for the process
groups; which backwards of its own forwards are split on another device; and a digest of the whole program, by which
devices find out that their slices belong together.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from penstock.arrays import Int8s, Int32s
from penstock.program.actions import NONE, Action, Kind, is_send
from penstock.program.types import Program

_DIGEST_BYTES = 16


class SliceArrays(NamedTuple):
    """The actions of one device, and the split backwards of its forwards that run on other devices."""

    kind: Int8s
    stage: Int32s
    microbatch: Int32s
    peer: Int32s
    """An index in the devices of the program, or NONE."""
    remote_split: Int32s
    """Rows of device, stage and micro-batch."""

    def encode(self) -> bytes:
        """The arrays as bytes, the same on every machine."""
        columns = (self.stage, self.microbatch, self.peer, self.remote_split)
        return b"".join([self.kind.astype("<i1").tobytes(), *(column.astype("<i4").tobytes() for column in columns)])


_NONE = np.zeros(0, np.int32)
NO_ACTIONS = SliceArrays(np.zeros(0, np.int8), _NONE, _NONE, _NONE, np.zeros((0, 3), np.int32))


@dataclass(frozen=True, eq=False)
class ProgramSlice:
    """The actions of one device of a lowered program.

    Attributes:
        plan: The digest of the plan that the program is for.
        program: The digest of the whole program. Slices of one program have the same.
        devices: The names of the program's devices.
        device: The index of this slice's device in `devices`; NONE for a rank without a device.
        arrays: The actions of the device.
        links: The links of the whole program: rows of the kind of send, the sender and the receiver.
    """

    plan: str
    program: str
    devices: tuple[str, ...]
    device: int
    arrays: SliceArrays
    links: Int32s

    @property
    def num_actions(self) -> int:
        """The number of actions of the device."""
        return len(self.arrays.kind)

    def actions(self) -> Iterator[Action]:
        """The actions of the device, in order."""
        columns = (column.tolist() for column in self.arrays[:4])
        for kind, stage, microbatch, peer in zip(*columns, strict=True):
            yield Action(Kind(kind), stage, microbatch, "" if peer == NONE else self.devices[peer])

    def split_backwards(self) -> set[tuple[str, int, int]]:
        """The split backwards (I and W as two actions) that concern the device, as device, stage and micro-batch.

        These are its own, and those of its forwards whose backward runs on another device.
        """
        kind, stage, microbatch, _, remote = self.arrays
        own = np.flatnonzero(kind == Kind.I)
        rows = [np.full(len(own), self.device), stage[own], microbatch[own]]
        split = [*np.stack(rows, axis=1).tolist(), *remote.tolist()]
        return {(self.devices[device], number, microbatch) for device, number, microbatch in split}


def slice_program(program: Program, device: str | None) -> ProgramSlice:
    """Return the slice of one device.

    Args:
        program: A lowered program.
        device: The name of the device; None for a rank that runs no device.
    """
    parts, links = slice_arrays(program), find_links(program)
    number = NONE if device is None else program.devices.index(device)
    return ProgramSlice(
        plan=program.plan.digest,
        program=digest_program(program.plan.digest, program.devices, [digest_slice(part) for part in parts], links),
        devices=program.devices,
        device=number,
        arrays=NO_ACTIONS if number == NONE else parts[number],
        links=links,
    )


def slice_arrays(program: Program) -> list[SliceArrays]:
    """The arrays of the slices of all devices."""
    remote = _find_remote_split(program)
    spans = [slice(start, stop) for start, stop in pairwise(program.offsets.tolist())]
    return [
        SliceArrays(program.kind[span], program.stage[span], program.microbatch[span], program.peer[span], rows)
        for span, rows in zip(spans, remote, strict=True)
    ]


def _find_remote_split(program: Program) -> list[Int32s]:
    """By device: the split backwards of its forwards that run on other devices."""
    index = {name: number for number, name in enumerate(program.devices)}
    parts: list[list[Int32s]] = [[NO_ACTIONS.remote_split] for _ in program.devices]
    for stage, item in enumerate(program.plan.stages):
        for forward, backward in zip(item.forward, item.backward, strict=True):
            if forward.device == backward.device:
                continue
            device = index[backward.device]
            first, last = program.offsets[device : device + 2].tolist()
            is_split = (program.kind[first:last] == Kind.I) & (program.stage[first:last] == stage)
            microbatch = program.microbatch[first:last][is_split]
            rows = [np.full_like(microbatch, device), np.full_like(microbatch, stage), microbatch]
            parts[index[forward.device]].append(np.stack(rows, axis=1))
    return [np.concatenate(rows) for rows in parts]


def find_links(program: Program) -> Int32s:
    """The links of a program, sorted: rows of the kind of send, the sender and the receiver."""
    sends = np.flatnonzero(is_send(program.kind))
    num = len(program.devices)
    ends = program.device_of[sends].astype(np.int64) * num + program.peer[sends]
    keys = np.unique(program.kind[sends].astype(np.int64) * num**2 + ends)
    return np.stack([keys // num**2, keys // num % num, keys % num], axis=1).astype(np.int32)


def digest_slice(arrays: SliceArrays) -> str:
    """A digest of the slice of one device."""
    # With the lengths: other arrays could have the same bytes.
    lengths = f"{len(arrays.kind)} {len(arrays.remote_split)} ".encode()
    return hashlib.blake2b(lengths + arrays.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def digest_program(plan: str, devices: Sequence[str], digests: Sequence[str], links: Int32s) -> str:
    """A digest of a program, from that of its plan and those of its slices."""
    contents = json.dumps([plan, list(devices), list(digests), links.tolist()])
    return hashlib.blake2b(contents.encode(), digest_size=_DIGEST_BYTES).hexdigest()
