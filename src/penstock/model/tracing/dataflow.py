"""The values that cross each cut between blocks, derived from a record of forward.

A block runs the model's forward from its start but skips the events of earlier blocks: their values are incoming
activations where this or a later block uses them. Values that depend on the model's inputs, constants and buffers only,
such as a causal mask, are *local*: every rank has the inputs, so every block that needs such a value computes it, and
nothing is sent. Ranks also take the same branch where forward reads such a value, for example whether rows are padded.
Values that depend on parameters or on random numbers are not local, so that the gradient of a parameter is computed in
one block.
"""

from dataclasses import dataclass

from penstock.errors import InputError
from penstock.model.tracing.record import COARSER_BLOCKS, Event, Record


@dataclass(frozen=True)
class Dataflow:
    """`live[k]` are the values that cross the cut after block k; `last_use[v]` is the last block that needs value v."""

    live: tuple[tuple[int, ...], ...]
    local: frozenset[int]
    last_use: tuple[int, ...]

    def runs(self, event: Event, unit: int) -> bool:
        """Return whether block `unit` executes this event, instead of using incoming activations."""
        if event.unit == unit or event.is_metadata_query or event.reads_values:
            return True
        return self.is_local(event) and self.needed(event) >= unit

    def is_local(self, event: Event) -> bool:
        """Return whether every block that needs the event executes it."""
        return _is_local(event, self.local)

    def needed(self, event: Event) -> int:
        """Return the last block that needs a value that the event makes or changes."""
        return max(self.last_use[value] for value in (*event.makes, *event.changes))


def find_flow(record: Record) -> Dataflow:
    """Determine the values that cross each cut of a recorded forward.

    Raises:
        InputError: A buffer is changed in one block and used in another.
    """
    _require_private_state(record)
    local = local_values(record)
    num_units = len(record.blocks)
    last_use = [value.unit for value in record.values]
    for event in record.events:
        if not event.is_metadata_query:
            # A value that Python branches on is needed by every later block, which takes the same branch.
            needed = num_units - 1 if event.reads_values else event.unit
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
    return Dataflow(live, local, tuple(last_use))


def _is_local(event: Event, local: frozenset[int]) -> bool:
    touched = (*event.makes, *event.changes)
    return not event.is_block and not event.changed_state and bool(touched) and local.issuperset(touched)


def local_values(record: Record) -> frozenset[int]:
    """Return the values that depend on the inputs, constants and buffers only."""
    inner = [event for event in record.events[1:] if not event.is_metadata_query]
    local = {value for event in inner if not event.is_block for value in event.makes} | set(record.events[0].makes)
    for event in inner:
        if event.is_block:
            local -= {*event.makes, *event.changes}
    while True:  # a value that is changed by non-local data also makes its dependents non-local
        before = len(local)
        for event in inner:
            if event.is_random or event.parameters or event.changed_state or not local.issuperset(event.uses):
                local -= {*event.makes, *event.changes}
        if len(local) == before:
            return frozenset(local)


def _require_private_state(record: Record) -> None:
    """Check that no buffer is changed in one block and used in another, which may be in another process."""
    changed = {name: event.unit for event in record.events for name in event.changed_state}
    for event in record.events:
        for name in (*event.parameters, *event.buffers):
            if changed.get(name, event.unit) != event.unit:
                raise InputError(
                    f"forward changes {name!r} near block {record.blocks[changed[name]]!r} and uses it near "
                    f"block {record.blocks[event.unit]!r}",
                    hint=COARSER_BLOCKS,
                )
