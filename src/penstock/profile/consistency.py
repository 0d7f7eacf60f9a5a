"""Checks that the parts of a profile fit together."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from penstock.profile.types import Tie, Unit


def check_largest(largest: tuple[int, ...], units: "tuple[Unit, ...]") -> None:
    """Check the largest parameter of each layer."""
    if len(largest) != len(units):
        raise ValueError(f"largest_parameter_bytes has {len(largest)} entries for {len(units)} layers")
    for size, unit in zip(largest, units, strict=True):
        if size > unit.trained_bytes:
            raise ValueError(
                f"the largest trained parameter of layer {unit.name!r} is larger than all of them together"
            )


def make_floats(value: msgspec.Struct, names: tuple[str, ...]) -> None:
    """Turn 2 into 2.0: both are equal but encode differently, and reading a file back must not change the digest."""
    for name in names:
        number = getattr(value, name)
        if type(number) is not float:
            msgspec.structs.force_setattr(value, name, float(number))


def measurements(unit: "Unit") -> frozenset[tuple[str, int]]:
    """Return the device kinds and micro-batch sizes of a layer's times."""
    return frozenset((time.kind, time.micro_batch_size) for time in unit.times)


def no_repeats(items: Sequence[Hashable], what: str) -> None:
    """Check that no item occurs twice."""
    seen: set[Hashable] = set()
    for item in items:
        if item in seen:
            raise ValueError(f"{what}: duplicate {item!r}")
        seen.add(item)


def check_tie(tie: "Tie", units: "tuple[Unit, ...]") -> None:
    """Check that a tie names layers that can share its parameter."""
    if len(set(tie.units)) < 2 or len(set(tie.units)) != len(tie.units):
        raise ValueError(f"tie {tie.name!r} must name two or more different layers")
    for index in tie.units:
        if index >= len(units):
            raise ValueError(f"tie {tie.name!r} names layer {index}, but the last layer is {len(units) - 1}")
        if units[index].parameter_bytes < tie.parameter_bytes:
            raise ValueError(f"tie {tie.name!r} is larger than the parameters of layer {units[index].name!r}")


def check_ties(unit: "Unit", ties: "Sequence[Tie]") -> None:
    """Check that all ties of a layer fit into its parameters."""
    trained = sum(tie.parameter_bytes for tie in ties if tie.is_trained)
    frozen = sum(tie.parameter_bytes for tie in ties if not tie.is_trained)
    if trained + frozen > unit.parameter_bytes:
        raise ValueError(f"the ties of layer {unit.name!r} are larger than its parameters")
    if trained > unit.trained_bytes:
        raise ValueError(f"the trained ties of layer {unit.name!r} are larger than its trained parameters")
    if frozen > unit.parameter_bytes - unit.trained_bytes:
        raise ValueError(f"the frozen ties of layer {unit.name!r} are larger than its frozen parameters")
