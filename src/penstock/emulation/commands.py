"""Commands to the ranks of an emulated scenario, which all take at the same step boundary.

The process that follows the run writes them as files. Rank 0 looks for them before every step and tells the others.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock import io
from penstock.cluster import Cluster
from penstock.plan import Plan

FORMAT = "penstock.switch/1"


class StateMove(msgspec.Struct, frozen=True):
    """Bytes of parameters and optimizer state that one device sends another."""

    source: str
    target: str
    num_bytes: float


class SwitchCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Go on with another plan."""

    format: str = FORMAT
    plan: Plan
    believed: Cluster
    """The cluster that the plan was made for."""
    moves: tuple[StateMove, ...] = ()


def switch_path(folder: Path, number: int) -> Path:
    """The file of the switch with a number, from 1."""
    return folder / f"switch-{number}.json"


def stop_path(folder: Path) -> Path:
    """The file that asks the ranks to end before the next step."""
    return folder / "end"


def write_switch(folder: Path, number: int, command: SwitchCommand) -> None:
    """Ask the ranks to change plans."""
    io.write_whole(switch_path(folder, number), io.encode_json(command))


def read_switch(folder: Path, number: int) -> SwitchCommand:
    """Read a command to change plans."""
    path = switch_path(folder, number)
    return io.decode_json(io.read_bytes(path), SwitchCommand, where=str(path), expected_format=FORMAT)


def join_moves(moves: Sequence[tuple[str, str, float]]) -> tuple[StateMove, ...]:
    """One move for each pair of devices, from the moves of layers.

    >>> join_moves([("d0", "d1", 1.0), ("d0", "d1", 2.0)])
    (StateMove(source='d0', target='d1', num_bytes=3.0),)
    """
    sums: dict[tuple[str, str], float] = {}
    for source, target, num_bytes in moves:
        sums[source, target] = sums.get((source, target), 0.0) + num_bytes
    return tuple(StateMove(source, target, num_bytes) for (source, target), num_bytes in sums.items())
