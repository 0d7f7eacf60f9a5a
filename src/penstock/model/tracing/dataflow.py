"""Which values must cross each cut between blocks, worked out from one record of forward.

A unit runs the model's forward from its start, but does nothing of what belongs to earlier units: what they made is
handed over where this or a later unit uses it. Values that follow from constants and buffers alone, such as a causal
mask, are *local*: every unit that needs one makes it again, and nothing is sent. What follows from parameters is not
local, so that each parameter has its gradient where it is used.
"""

from dataclasses import dataclass

from penstock.errors import InputError
from penstock.model.tracing.record import COARSER, Event, Record


@dataclass(frozen=True)
class Flow:
    """`live[k]` are the values that cross the cut after unit k; `last_use[v]` is the last unit that needs value v."""

    live: tuple[tuple[int, ...], ...]
    local: frozenset[int]
    last_use: tuple[int, ...]

    def runs(self, event: Event, unit: int) -> bool:
        """Whether `unit` does this event itself, rather than taking what was handed over."""
        if event.unit == unit or event.asks_form or event.reads:
            return True
        return _is_local(event, self.local) and self._needed(event) >= unit

    def _needed(self, event: Event) -> int:
        return max(self.last_use[value] for value in (*event.makes, *event.changes))


def find_flow(record: Record) -> Flow:
    """The flow of values between the units of a recorded forward."""
    _require_private_state(record)
    local = local_values(record)
    num_units = len(record.blocks)
    last_use = [value.unit for value in record.values]
    for event in record.events:
        if not event.asks_form:
            # What Python decides by, every later unit must decide by again.
            needed = num_units - 1 if event.reads else event.unit
            for value in event.uses:
                last_use[value] = max(last_use[value], needed)
    for event in reversed(record.events):
        if _is_local(event, local):
            needed = max(last_use[value] for value in (*event.makes, *event.changes))
            for value in event.uses:
                last_use[value] = max(last_use[value], needed)
    live = tuple(
        tuple(
            number
            for number, value in enumerate(record.values)
            if number not in local and value.unit <= cut < last_use[number]
        )
        for cut in range(num_units - 1)
    )
    return Flow(live, local, tuple(last_use))


def _is_local(event: Event, local: frozenset[int]) -> bool:
    touched = (*event.makes, *event.changes)
    return not event.is_block and not event.changed_state and bool(touched) and local.issuperset(touched)


def local_values(record: Record) -> frozenset[int]:
    """The values that follow from constants and buffers alone."""
    inner = [event for event in record.events[1:] if not event.asks_form]
    local = {value for event in inner if not event.is_block for value in event.makes} - set(record.events[0].makes)
    for event in inner:
        if event.is_block:
            local -= {*event.makes, *event.changes}
    while True:  # a value that later turns out to be changed by something handed over takes others with it
        before = len(local)
        for event in inner:
            if event.is_random or event.parameters or event.changed_state or not local.issuperset(event.uses):
                local -= {*event.makes, *event.changes}
        if len(local) == before:
            return frozenset(local)


def _require_private_state(record: Record) -> None:
    """Refuse a buffer that forward changes in one unit and uses in another: they may be different processes."""
    changed = {name: event.unit for event in record.events for name in event.changed_state}
    for event in record.events:
        for name in (*event.parameters, *event.buffers):
            if changed.get(name, event.unit) != event.unit:
                raise InputError(
                    f"forward changes {name!r} near block {record.blocks[changed[name]]!r} and uses it near "
                    f"block {record.blocks[event.unit]!r}",
                    hint=COARSER,
                )
