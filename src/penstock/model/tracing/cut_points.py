"""The exact cut between the calls of two blocks: the position where the fewest bytes are needed later.

Code such as `next_block(torch.cat([grow(y), skip]))` computes large tensors right before the next block. The next block
can compute them itself, so that only their inputs cross the cut.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from penstock.errors import InputError
from penstock.model.tracing.record import Record, Value


def choose_cuts(record: Record, local: frozenset[int]) -> Record:
    """Assign every event of the record to the block that executes it. Of equally good cuts, the last is chosen.

    `local` are the values that never cross a cut, since every block computes them itself. A part of forward that is
    recomputed in the backward (`torch.utils.checkpoint`) belongs to one block.

    Raises:
        InputError: One call of `torch.utils.checkpoint` contains several blocks.
    """
    calls = [number for number, event in enumerate(record.events) if event.is_block]
    produced, last_use = _lifetimes(record)
    cuts = []
    for before, after in pairwise(calls):
        crossing = [
            sum(
                _bytes(value)
                for number, value in enumerate(record.values)
                if number not in local and produced[number] < position <= last_use[number]
            )
            if not _is_in_region(record, position)
            else math.inf
            for position in range(before + 1, after + 1)
        ]
        least = min(crossing)
        if least == math.inf:
            raise InputError(
                f"one call of torch.utils.checkpoint contains the blocks {record.events[before].name!r} and "
                f"{record.events[after].name!r}",
                hint="Checkpoint each block by itself, or name coarser blocks.",
            )
        cuts.append(after - crossing[::-1].index(least))
    events = tuple(replace(event, unit=_unit(cuts, number)) for number, event in enumerate(record.events))
    values = tuple(replace(value, unit=_unit(cuts, produced[number])) for number, value in enumerate(record.values))
    return replace(record, events=events, values=values)


def _is_in_region(record: Record, position: int) -> bool:
    """Return whether the cut before an event divides a call of `torch.utils.checkpoint` or of an autograd function."""
    calls = [event.call for event in record.events[position - 1 : position + 1]]
    numbers = {0 if call is None else call.context.region for call in calls}
    return len(numbers) == 1 and 0 not in numbers


def _unit(cuts: Sequence[int], event: int) -> int:
    return sum(cut <= event for cut in cuts)


def _lifetimes(record: Record) -> tuple[list[int], list[int]]:
    """Return the events that first produce and last use each value."""
    produced = [len(record.events)] * len(record.values)
    last_use = [-1] * len(record.values)
    for number, event in enumerate(record.events):
        for value in event.makes:
            produced[value] = min(produced[value], number)
        if not event.is_metadata_query:
            for value in event.uses:
                # A value that Python branches on is needed by every later block, which takes the same branch.
                last_use[value] = max(last_use[value], len(record.events) if event.reads_values else number)
    return produced, last_use


def _bytes(value: Value) -> int:
    return math.prod(value.shape) * value.dtype.itemsize
