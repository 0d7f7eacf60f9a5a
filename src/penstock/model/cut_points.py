"""Where exactly to cut: between the calls of two blocks, at the place where the fewest bytes are needed later.

Code such as `next_block(torch.cat([grow(y), skip]))` makes large tensors right before the next block. The next unit can
as well make them itself, and then only what they are made of has to cross.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from penstock.model.tracing import Record, Value


def place_cuts(record: Record, local: frozenset[int]) -> Record:
    """The record with every event in the unit that is to do it. Of equally good places, the last one is taken.

    `local` are the values that never cross, since every unit makes them itself.
    """
    calls = [number for number, event in enumerate(record.events) if event.is_block]
    made, last_use = _life(record)
    cuts = []
    for before, after in pairwise(calls):
        crossing = [
            sum(
                _bytes(value)
                for number, value in enumerate(record.values)
                if number not in local and made[number] < place <= last_use[number]
            )
            for place in range(before + 1, after + 1)
        ]
        least = min(crossing)
        cuts.append(after - crossing[::-1].index(least))
    events = tuple(replace(event, unit=_unit(cuts, number)) for number, event in enumerate(record.events))
    values = tuple(replace(value, unit=_unit(cuts, made[number])) for number, value in enumerate(record.values))
    return replace(record, events=events, values=values)


def _unit(cuts: Sequence[int], event: int) -> int:
    return sum(cut <= event for cut in cuts)


def _life(record: Record) -> tuple[list[int], list[int]]:
    """The events that made each value first, and that use it last."""
    made = [len(record.events)] * len(record.values)
    last_use = [-1] * len(record.values)
    for number, event in enumerate(record.events):
        for value in event.makes:
            made[value] = min(made[value], number)
        if not event.asks_form:
            for value in event.uses:
                # What Python decides by, every later unit must decide by again.
                last_use[value] = max(last_use[value], len(record.events) if event.reads else number)
    return made, last_use


def _bytes(value: Value) -> int:
    return math.prod(value.shape) * value.dtype.itemsize
