"""The order of a plan's compute actions, as the plan file holds it.

A device's actions are three consecutive arrays (kind as int8, stage and micro-batch as int32, little-endian),
compressed with zlib and written in base64: a few hundred bytes for a thousand actions. zlib's checksum finds damage. A
rank reads its own device's entry only.
"""

import binascii
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence

import msgspec
import numpy as np

from penstock.errors import InputError
from penstock.plan import DeviceOrder, Order, Plan
from penstock.program.actions import PASS_KINDS, is_pass
from penstock.program.types import Program, program_from_arrays

_BYTES = 9
"""Of one action: kind, stage, micro-batch."""
_REMAKE = "Plan again with `penstock plan`, or pass --schedule to reorder the actions."


def with_order(plan: Plan, program: Program) -> Plan:
    """The plan, holding the order of a program's compute actions.

    Args:
        plan: The plan that the program is for.
        program: A compute program. Actions that lowering adds are left out.

    Returns:
        The plan with its `order` set.
    """
    is_compute = is_pass(program.kind)
    devices = []
    for number, name in enumerate(program.devices):
        span = slice(int(program.offsets[number]), int(program.offsets[number + 1]))
        rows = np.arange(span.start, span.stop)[is_compute[span]]
        if len(rows):
            devices.append(DeviceOrder(name, _pack(program, rows)))
    return msgspec.structs.replace(plan, order=Order(plan=plan.ordered_digest, devices=tuple(devices)))


def program_of_order(plan: Plan, devices: Sequence[str]) -> Program:
    """The compute program that a plan holds.

    Args:
        plan: A plan with an order.
        devices: The names of the cluster's devices; those without actions stay idle.

    Returns:
        The compute program, with its devices in the given order.

    Raises:
        InputError: The order is damaged, or names a device that does not exist.
    """
    assert plan.order is not None
    packed = {item.device: item.actions for item in plan.order.devices}
    if missing := sorted(set(packed) - set(devices)):
        raise InputError(f"the plan's order has actions for unknown device {missing[0]!r}", hint=_REMAKE)
    most = plan.num_stages * plan.num_microbatches * len(PASS_KINDS)
    parts = [_unpack(packed[name], name, most) if name in packed else _NOTHING for name in devices]
    kind, stage, microbatch = (np.concatenate([part[column] for part in parts]) for column in range(3))
    return program_from_arrays(plan, devices, [len(part[0]) for part in parts], kind, stage, microbatch)


_NOTHING = (np.zeros(0, np.int8), np.zeros(0, np.int32), np.zeros(0, np.int32))


def _pack(program: Program, rows: np.ndarray) -> str:
    columns = (
        program.kind[rows].astype("<i1"),
        program.stage[rows].astype("<i4"),
        program.microbatch[rows].astype("<i4"),
    )
    return b64encode(zlib.compress(b"".join(column.tobytes() for column in columns), 9)).decode("ascii")


def _unpack(text: str, device: str, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    try:
        reader = zlib.decompressobj()
        data = reader.decompress(b64decode(text, validate=True), most * _BYTES + 1)
        if not reader.eof or len(data) % _BYTES:
            raise ValueError("too long or truncated")
    except (ValueError, binascii.Error, zlib.error) as error:
        raise InputError(f"the plan's order of {device!r} is damaged: {error}", hint=_REMAKE) from None
    num = len(data) // _BYTES
    kind = np.frombuffer(data, "<i1", num)
    stage = np.frombuffer(data, "<i4", num, num)
    microbatch = np.frombuffer(data, "<i4", num, 5 * num)
    if not ((kind >= 0) & is_pass(kind)).all():
        raise InputError(f"the plan's order of {device!r} contains actions that are not compute actions", hint=_REMAKE)
    return kind, stage, microbatch
