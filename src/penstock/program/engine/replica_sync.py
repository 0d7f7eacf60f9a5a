"""Replica syncs: actions in which all replicas of a stage wait for each other, as batch norm over all rows requires.

Such an action completes only after all replicas have started theirs. So the actions of all replicas are merged into
one node, which depends on everything that any of them depends on. If the merged graph has no cycle, devices cannot wait
for each other forever.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.program.actions import NONE
from penstock.program.dependencies import Dependencies, find_replica_syncs
from penstock.program.engine.execution import is_compiled_used
from penstock.program.types import Program


class SyncGraph(NamedTuple):
    """The merged graph. A node has the number of one of its actions."""

    node: Ints
    """For each action its node."""
    synced: Ints
    """The nodes of replica syncs."""
    begin: Ints
    after: Ints
    """The nodes that wait for node n: after[begin[n]:begin[n + 1]]."""
    num_waits: Ints
    """For each node how many it waits for."""


def find_sync_graph(program: Program, dependencies: Dependencies, stages: Collection[int]) -> SyncGraph:
    """The merged graph of a lowered program, with replica syncs in some stages."""
    num = program.num_actions
    sync_of = find_replica_syncs(program, stages).sync_of
    actions = np.flatnonzero(sync_of != NONE)
    _, first = np.unique(sync_of[actions], return_index=True)
    node = np.arange(num)
    node[actions] = actions[first][sync_of[actions]]
    # A device runs its actions in order.
    earlier = np.flatnonzero(program.device_of[:-1] == program.device_of[1:])
    # A message comes after its send.
    counts = np.diff(dependencies.consumers.begin)
    is_message = np.repeat(dependencies.receive != NONE, counts)
    sends = np.repeat(dependencies.send, counts)[is_message]
    before = node[np.concatenate([earlier, sends])]
    after = node[np.concatenate([earlier + 1, dependencies.consumers.values[is_message]])]
    order = np.argsort(before, kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=num))])
    return SyncGraph(node, np.unique(node[actions]), begin, after[order], np.bincount(after, minlength=num))


def count_waits(graph: SyncGraph) -> Ints:
    """For each node how many nodes it waits for in vain; compiled if the engine is loaded or the graph is large."""
    if not is_compiled_used(len(graph.node)):
        return count_waits_plainly(graph)
    from penstock.program.engine.replica_sync_kernel import count_waits_compiled

    waits: Ints = count_waits_compiled(graph.begin, graph.after, graph.num_waits)
    return waits


def count_waits_plainly(graph: SyncGraph) -> Ints:
    """For each node how many nodes it waits for in vain, without compiled code."""
    begin, after, waits = graph.begin.tolist(), graph.after.tolist(), graph.num_waits.tolist()
    ready = [node for node, count in enumerate(waits) if not count]
    while ready:
        node = ready.pop()
        for then in after[begin[node] : begin[node + 1]]:
            waits[then] -= 1
            if not waits[then]:
                ready.append(then)
    return np.array(waits, dtype=np.int64)
