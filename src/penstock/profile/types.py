"""A profile: what a model costs, unit by unit. These values are also the file format (docs/formats.md)."""

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Annotated

import msgspec

from penstock import io

FORMAT = "penstock.profile/2"

# Far beyond anything real, and small enough that sums and products of them never overflow.
MAX_SECONDS = 1e9
MAX_BYTES = 2**60
MAX_MICRO_BATCH_SIZE = 2**40
MAX_RATIO = 1e6
LATER_FIELDS = ("largest_parameter_bytes", "overheads")
"""Files that do not have them keep their digest."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
Rows = Annotated[int, msgspec.Meta(ge=1, le=MAX_MICRO_BATCH_SIZE)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=MAX_RATIO)]


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds of one unit for one micro-batch of `rows` rows on one device of `kind`."""

    kind: str
    micro_batch_size: Rows
    forward_s: Seconds
    input_grad_s: Seconds
    weight_grad_s: Seconds
    step_s: Seconds = 0.0
    """The optimizer's step for this unit, once per iteration."""

    def __post_init__(self) -> None:
        _make_floats(self, ("forward_s", "input_grad_s", "weight_grad_s", "step_s"))
        if not all(map(math.isfinite, (self.forward_s, self.input_grad_s, self.weight_grad_s, self.step_s))):
            raise ValueError("seconds must be finite")


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bytes of one unit for one micro-batch of `rows` rows."""

    micro_batch_size: Rows
    cut_bytes: Bytes
    """Every tensor alive across the cut after this unit; its gradient has the same size."""
    saved_bytes: Bytes
    """What the forward keeps for the backward, its input included."""
    pending_bytes: Bytes | None = None
    """What is kept between the input gradient and the weight gradient; the same as saved_bytes if not given."""


class Unit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The smallest piece of a model that is never split."""

    name: str
    parameter_bytes: Bytes
    sizes: tuple[Sizes, ...]
    times: tuple[Times, ...]

    def __post_init__(self) -> None:
        if not self.sizes or not self.times:
            raise ValueError(f"unit {self.name!r} needs at least one entry in sizes and one in times")
        _no_repeats([size.micro_batch_size for size in self.sizes], f"sizes of unit {self.name!r}")
        _no_repeats([(time.kind, time.micro_batch_size) for time in self.times], f"times of unit {self.name!r}")


class Tie(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters that several units share; each unit's parameter_bytes includes them."""

    name: str
    parameter_bytes: Bytes
    units: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]


class Overhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a device of `kind` spends around its units, where that takes its time: as on a processor.

    It counts for models so small that a job takes no longer than what must be done around it, and for large messages.
    """

    kind: str
    job_s: Seconds
    """Every job (F, I, W, B, R), besides its units."""
    message_s: Seconds
    """Every message that it sends, and every one that it receives."""
    byte_s: Seconds
    """Every byte that it sends."""
    split_ratio: Ratio = 0.0
    """How much longer I and W together take than one backward, as a part of it."""
    moved_ratio: Ratio = 0.0
    """How much longer a forward and its backward take if they are in different places, besides messages."""

    def __post_init__(self) -> None:
        names = ("job_s", "message_s", "byte_s", "split_ratio", "moved_ratio")
        _make_floats(self, names)
        if not all(math.isfinite(getattr(self, name)) for name in names):
            raise ValueError("overheads must be finite")


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The units of a model in topological order, with what was measured or computed for each."""

    format: str = FORMAT
    name: str
    micro_batch_size: Rows
    """Rows of a micro-batch, unless a plan says otherwise."""
    units: tuple[Unit, ...]
    input_bytes: Bytes = 0
    """The model's input for one micro-batch of `rows` rows."""
    ties: tuple[Tie, ...] = ()
    gradient_ratio: Ratio = 1.0
    """Bytes of gradients per byte of parameters."""
    optimizer_ratio: Ratio = 2.0
    """Bytes of optimizer state per byte of parameters (Adam in one precision: 2)."""
    assumptions: tuple[str, ...] = ()
    """What the source did not say and was assumed, for people."""
    largest_parameter_bytes: tuple[Bytes, ...] = ()
    """For each unit its largest single parameter, which decides how much memory jobs need for themselves."""
    overheads: tuple[Overhead, ...] = ()
    """What is spent around units, by kind of device; nothing for a kind that is not there."""

    def __post_init__(self) -> None:
        if not self.units:
            raise ValueError("a profile needs at least one unit")
        _make_floats(self, ("gradient_ratio", "optimizer_ratio"))
        if not (math.isfinite(self.gradient_ratio) and math.isfinite(self.optimizer_ratio)):
            raise ValueError("gradient_ratio and optimizer_ratio must be finite")
        _no_repeats([unit.name for unit in self.units], "unit names")
        expected = _measured(self.units[0])
        for unit in self.units:
            if _measured(unit) != expected:
                raise ValueError(
                    f"unit {unit.name!r} is not measured on the same kinds and rows as {self.units[0].name!r}"
                )
        if self.largest_parameter_bytes:
            _check_largest(self.largest_parameter_bytes, self.units)
        _no_repeats([overhead.kind for overhead in self.overheads], "overheads")
        for tie in self.ties:
            _check_tie(tie, self.units)
        for number, unit in enumerate(self.units):
            if sum(tie.parameter_bytes for tie in self.ties if number in tie.units) > unit.parameter_bytes:
                raise ValueError(f"the ties of unit {unit.name!r} come to more than its parameters")

    @property
    def num_units(self) -> int:
        """How many units the chain has."""
        return len(self.units)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The device kinds that were measured, in the order of the file."""
        return tuple(dict.fromkeys(time.kind for time in self.units[0].times))

    @cached_property
    def digest(self) -> str:
        """A short name for the contents, what was assumed left aside."""
        plain = msgspec.structs.replace(self, assumptions=())
        return io.digest(plain, without=[name for name in LATER_FIELDS if not getattr(self, name)])


def _check_largest(largest: tuple[int, ...], units: tuple[Unit, ...]) -> None:
    if len(largest) != len(units):
        raise ValueError(f"largest_parameter_bytes has {len(largest)} entries for {len(units)} units")
    for size, unit in zip(largest, units, strict=True):
        if size > unit.parameter_bytes:
            raise ValueError(f"the largest parameter of unit {unit.name!r} is larger than its parameters together")


def _make_floats(value: msgspec.Struct, names: tuple[str, ...]) -> None:
    """Turn 2 into 2.0: they are equal but are written differently, and a profile must keep its digest in a file."""
    for name in names:
        given = getattr(value, name)
        if type(given) is not float:
            msgspec.structs.force_setattr(value, name, float(given))


def _measured(unit: Unit) -> frozenset[tuple[str, int]]:
    return frozenset((time.kind, time.micro_batch_size) for time in unit.times)


def _no_repeats(items: Sequence[Hashable], what: str) -> None:
    seen: set[Hashable] = set()
    for item in items:
        if item in seen:
            raise ValueError(f"{what}: {item!r} is there twice")
        seen.add(item)


def _check_tie(tie: Tie, units: tuple[Unit, ...]) -> None:
    if len(set(tie.units)) < 2 or len(set(tie.units)) != len(tie.units):
        raise ValueError(f"tie {tie.name!r} must name two or more different units")
    for index in tie.units:
        if index >= len(units):
            raise ValueError(f"tie {tie.name!r} names unit {index}, but the last unit is {len(units) - 1}")
        if units[index].parameter_bytes < tie.parameter_bytes:
            raise ValueError(f"tie {tie.name!r} is larger than the parameters of unit {units[index].name!r}")
