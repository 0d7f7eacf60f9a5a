"""Device kind, memory and speed of a device, from its own table, its host's and the top level of the file."""

import msgspec

from penstock.cluster.declaration.types import Traits
from penstock.profile import find_kind, near_kinds
from penstock.units import show_bytes


class ResolvedTraits(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a device, and the assumptions behind them."""

    kind: str
    memory_bytes: int | None
    speed: float
    is_default_speed: bool
    memory_assumption: str | None


def resolve(levels: tuple[Traits, ...]) -> ResolvedTraits | None:
    """Resolve the properties of a device from the levels, the most specific first; None if no level has a kind.

    The most specific level wins. A memory or speed beside a kind applies to that kind only, so a device of another
    kind does not inherit it:

    >>> host, device = Traits(kind="A100-40", memory=38_000_000_000), Traits(kind="T4")
    >>> resolved = resolve((device, host))
    >>> resolved.memory_bytes, resolved.memory_assumption
    (16000000000, "The memory of kind 'T4' is not specified: 16.0 GB from its data sheet.")
    """
    kind = next((level.kind for level in levels if level.kind is not None), None)
    if kind is None:
        return None
    matching = [level for level in levels if level.kind in (None, kind)]
    memory = next((level.memory for level in matching if level.memory is not None), None)
    speed = next((level.speed for level in matching if level.speed is not None), None)
    sheet = find_kind(kind) if memory is None else None
    memory_bytes = sheet.memory_bytes if sheet is not None else memory if isinstance(memory, int) else None
    return ResolvedTraits(
        kind=kind,
        memory_bytes=memory_bytes,
        speed=1.0 if speed is None else speed,
        is_default_speed=speed is None,
        memory_assumption=_memory_assumption(kind, memory_bytes) if memory is None else None,
    )


def _memory_assumption(kind: str, memory_bytes: int | None) -> str:
    missing = f"The memory of kind {kind!r} is not specified"
    if memory_bytes is not None:
        return f"{missing}: {show_bytes(memory_bytes)} from its data sheet."
    near = near_kinds(kind)
    question = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{missing} and the kind has no data sheet{question}: no memory limit is assumed."
