"""The proof that replica syncs cannot deadlock.

An action with a replica sync completes only after all replicas have started theirs. The proof therefore merges the
actions of all replicas into one node, which depends on everything that any of them depends on. If the merged graph has
no cycle, the ranks cannot wait for each other forever.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from penstock.errors import InputError
from penstock.program import NONE, Kind
from penstock.program.proof import Proof
from penstock.runtime.layout.layout import Layout

SYNC_KINDS = {Kind.F: 0, Kind.I: 1, Kind.B: 1}
"""Kinds of actions with a replica sync. I and B of two replicas belong to the same sync."""


def check_replica_sync(proof: Proof, layout: Layout) -> None:
    """Check that the replica syncs of a program cannot deadlock.

    Raises:
        InputError: The replicas of a stage run its syncs in incompatible orders.
    """
    synced = {number for number, stage in enumerate(layout.stages) if stage.needs_sync}
    if not synced:
        return
    program = proof.program
    node = np.arange(program.num_actions)
    first: dict[tuple[int, int, int], int] = {}
    for action in np.flatnonzero(np.isin(program.kind, list(SYNC_KINDS))).tolist():
        stage = int(program.stage[action])
        if stage in synced:
            key = (SYNC_KINDS[Kind(int(program.kind[action]))], stage, int(program.microbatch[action]))
            node[action] = first.setdefault(key, action)
    after: dict[int, list[int]] = {}
    needs: dict[int, list[int]] = {}
    waits = np.zeros(program.num_actions, dtype=np.int64)
    for before, then in _edges(proof):
        after.setdefault(int(node[before]), []).append(int(node[then]))
        needs.setdefault(int(node[then]), []).append(int(node[before]))
        waits[node[then]] += 1
    ready = [action for action in np.unique(node).tolist() if not waits[action]]
    while ready:
        for then in after.get(ready.pop(), ()):
            waits[then] -= 1
            if not waits[then]:
                ready.append(then)
    blocked = {action for action in first.values() if waits[action]}
    if blocked:
        cycle = _find_cycle(min(blocked), {action: [item for item in needs[action] if waits[item]] for action in needs})
        _, stage, microbatch = next(key for key, action in first.items() if action in cycle)
        devices = ", ".join(layout.devices[rank] for rank in layout.stages[stage].forward)
        raise InputError(
            f"stage {stage} has batch norm and replicas on {devices}, which run its micro-batches in orders that "
            f"deadlock in the replica sync (micro-batch {microbatch})",
            hint="Use schedule gpipe or 1f1b, plan without replicas of this stage, or use GroupNorm.",
        )


def _find_cycle(action: int, needs: Mapping[int, Sequence[int]]) -> set[int]:
    """Follow dependencies from a blocked action until one repeats; return the cycle."""
    path: list[int] = []
    while action not in path:
        path.append(action)
        action = needs[action][0]
    return set(path[path.index(action) :])


def _edges(proof: Proof) -> Iterator[tuple[int, int]]:
    """Yield pairs (before, after): consecutive actions of a device, and a send with every consumer of its message."""
    program, dependencies = proof.program, proof.dependencies
    for begin, end in zip(program.offsets[:-1].tolist(), program.offsets[1:].tolist(), strict=True):
        for action in range(begin, end - 1):
            yield action, action + 1
    for transfer in np.flatnonzero(dependencies.receive != NONE).tolist():
        begin, end = dependencies.consumers.begin[transfer], dependencies.consumers.begin[transfer + 1]
        for consumer in dependencies.consumers.values[begin:end].tolist():
            yield int(dependencies.send[transfer]), consumer
