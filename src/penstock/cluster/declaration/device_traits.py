"""Kind, memory and speed of a device, from what is said of it, of its host and at the top of the file."""

import difflib

import msgspec

from penstock.cluster.declaration.declared import Traits
from penstock.profile import KINDS, find_kind
from penstock.units import show_bytes


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a device, and what had to be assumed for it."""

    kind: str
    memory_bytes: int | None
    speed: float
    speed_given: bool
    memory_assumption: str | None


def resolve(levels: tuple[Traits, ...]) -> Resolved | None:
    """What holds for a device, given the levels from the nearest to the farthest; None if none gives a kind.

    The nearest level counts. But a memory or a speed beside a kind is said of that kind, so a device of another
    kind does not take it over:

    >>> host, device = Traits(kind="A100-40", memory=38_000_000_000), Traits(kind="T4")
    >>> resolved = resolve((device, host))
    >>> resolved.memory_bytes, resolved.memory_assumption
    (16000000000, "The memory of kind 'T4' is not given: 16.0 GB is taken from its data sheet.")
    """
    kind = next((level.kind for level in levels if level.kind is not None), None)
    if kind is None:
        return None
    fitting = [level for level in levels if level.kind in (None, kind)]
    memory = next((level.memory for level in fitting if level.memory is not None), None)
    speed = next((level.speed for level in fitting if level.speed is not None), None)
    sheet = find_kind(kind) if memory is None else None
    memory_bytes = sheet.memory_bytes if sheet is not None else memory if isinstance(memory, int) else None
    return Resolved(
        kind=kind,
        memory_bytes=memory_bytes,
        speed=1.0 if speed is None else speed,
        speed_given=speed is not None,
        memory_assumption=_memory_assumption(kind, memory_bytes) if memory is None else None,
    )


def _memory_assumption(kind: str, memory_bytes: int | None) -> str:
    unsaid = f"The memory of kind {kind!r} is not given"
    if memory_bytes is not None:
        return f"{unsaid}: {show_bytes(memory_bytes)} is taken from its data sheet."
    near = difflib.get_close_matches(kind[:60], KINDS, n=1)
    question = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{unsaid} and the kind is not a known one{question}: no memory limit is taken."
