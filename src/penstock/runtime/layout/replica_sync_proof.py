"""The proof that ranks which meet in the midst of jobs do not wait for each other in a circle.

A job at which ranks meet goes on only when all of them have come to it. So all their actions count as one, and what
must come before one of them must come before all: if the order of the program has no circle then, none can close.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from penstock.errors import InputError
from penstock.program import NONE, Kind
from penstock.program.proof import Proof
from penstock.runtime.layout.layout import Layout

MEETING_KINDS = {Kind.F: 0, Kind.I: 1, Kind.B: 1}
"""Kinds of jobs at which members meet; the input gradient meets both gradients at once."""


def check_meetings(proof: Proof, layout: Layout) -> None:
    """Refuse a program in which members of a stage come to their meetings in orders that do not fit together."""
    meeting = {number for number, stage in enumerate(layout.stages) if stage.meets}
    if not meeting:
        return
    program = proof.program
    node = np.arange(program.num_actions)
    first: dict[tuple[int, int, int], int] = {}
    for place in np.flatnonzero(np.isin(program.kind, list(MEETING_KINDS))).tolist():
        stage = int(program.stage[place])
        if stage in meeting:
            key = (MEETING_KINDS[Kind(int(program.kind[place]))], stage, int(program.microbatch[place]))
            node[place] = first.setdefault(key, place)
    after: dict[int, list[int]] = {}
    needs: dict[int, list[int]] = {}
    waits = np.zeros(program.num_actions, dtype=np.int64)
    for before, then in _edges(proof):
        after.setdefault(int(node[before]), []).append(int(node[then]))
        needs.setdefault(int(node[then]), []).append(int(node[before]))
        waits[node[then]] += 1
    ready = [place for place in np.unique(node).tolist() if not waits[place]]
    while ready:
        for then in after.get(ready.pop(), ()):
            waits[then] -= 1
            if not waits[then]:
                ready.append(then)
    stuck = {place for place in first.values() if waits[place]}
    if stuck:
        circle = _circle(min(stuck), {place: [item for item in needs[place] if waits[item]] for place in needs})
        _, stage, microbatch = next(key for key, place in first.items() if place in circle)
        devices = ", ".join(layout.devices[rank] for rank in layout.stages[stage].forward)
        raise InputError(
            f"stage {stage} has batch norm, and its rows on {devices}: they must meet for every micro-batch, but "
            f"come to it in orders in which they would wait for each other for ever (micro-batch {microbatch})",
            hint="Use schedule gpipe or 1f1b, plan so that one device has the whole stage, or use GroupNorm.",
        )


def _circle(place: int, needs: Mapping[int, Sequence[int]]) -> set[int]:
    """From what is stuck to what it waits for, and so on, until something comes again."""
    path: list[int] = []
    while place not in path:
        path.append(place)
        place = needs[place][0]
    return set(path[path.index(place) :])


def _edges(proof: Proof) -> Iterator[tuple[int, int]]:
    """What comes before what: on a device one action after the other; a message before whoever needs it."""
    program, wiring = proof.program, proof.wiring
    for begin, end in zip(program.offsets[:-1].tolist(), program.offsets[1:].tolist(), strict=True):
        for place in range(begin, end - 1):
            yield place, place + 1
    for transfer in np.flatnonzero(wiring.receive != NONE).tolist():
        begin, end = wiring.consumers.begin[transfer], wiring.consumers.begin[transfer + 1]
        for consumer in wiring.consumers.values[begin:end].tolist():
            yield int(wiring.send[transfer]), consumer
