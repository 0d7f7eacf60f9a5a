"""The part of the proof about restrictions of layers: training accepts the program.

A stage with a layer that syncs replicas, such as batch norm, needs orders in which replicas do not wait for each other
in a cycle (`program/engine/replica_sync.py`). Some layers do not support a split backward. Other restrictions do not
depend on the order (`plan/pricing/restrictions.py`).
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.errors import DeadlockError, ProofError
from penstock.plan.pricing import Costs
from penstock.program.actions import Kind
from penstock.program.dependencies import Dependencies
from penstock.program.engine import SyncGraph, count_waits, find_sync_graph
from penstock.program.types import Program

SYNC_HINT = "Use schedule gpipe or 1f1b, or the planner auto, plan without replicas of this stage, or use GroupNorm."


class BlockedSync(NamedTuple):
    """A replica sync in a cycle: the stage and the micro-batch."""

    stage: int
    microbatch: int


def check_restrictions(program: Program, costs: Costs, dependencies: Dependencies) -> None:
    """Check that training accepts a lowered program.

    Raises:
        ProofError: The plan breaks a restriction of its layers.
        DeadlockError: Replicas of a stage wait for each other in a cycle.
    """
    rules = costs.restrictions
    if rules.violation is not None:
        raise ProofError(rules.violation.what, hint=rules.violation.hint)
    for stage in _split_stages(program) & set(rules.fused):
        raise ProofError(
            f"the backward of stage {stage} is split, which its layer {rules.fused[stage]!r} does not support",
            hint="Plan without split backwards (--no-backward-split), or use the planner auto.",
        )
    blocked = find_blocked_sync(program, dependencies, rules.synced)
    if blocked is not None:
        devices = ", ".join(replica.device for replica in costs.plan.stages[blocked.stage].forward)
        raise DeadlockError(
            f"stage {blocked.stage} has replicas on {devices}, which exchange sums over all rows in layer "
            f"{rules.synced[blocked.stage]!r}, and the orders of its micro-batches deadlock in this replica sync "
            f"(micro-batch {blocked.microbatch})",
            hint=SYNC_HINT,
        )


def meets_restrictions(program: Program, costs: Costs, dependencies: Dependencies) -> bool:
    """Whether training accepts a lowered program, as `check_restrictions` checks."""
    rules = costs.restrictions
    if rules.violation is not None or (rules.fused and _split_stages(program) & set(rules.fused)):
        return False
    if not rules.synced:
        return True
    graph = find_sync_graph(program, dependencies, rules.synced)
    return not count_waits(graph)[graph.synced].any()


def find_blocked_sync(program: Program, dependencies: Dependencies, stages: Collection[int]) -> BlockedSync | None:
    """Find a replica sync of these stages that is part of a cycle.

    None if no replica sync waits in vain, or if those that do wait for a deadlock without replica syncs.
    """
    if not stages:
        return None
    graph = find_sync_graph(program, dependencies, stages)
    waits = count_waits(graph)
    blocked = graph.synced[waits[graph.synced] > 0]
    if not len(blocked):
        return None
    cycle = _find_cycle(graph, waits, int(blocked[0]))
    action = next((node for node in graph.synced.tolist() if node in cycle), None)
    return None if action is None else BlockedSync(int(program.stage[action]), int(program.microbatch[action]))


def _find_cycle(graph: SyncGraph, waits: Ints, node: int) -> set[int]:
    """Follow dependencies from a blocked node until one repeats; return the cycle."""
    before = np.repeat(np.arange(len(waits)), np.diff(graph.begin))
    path: list[int] = []
    while node not in path:
        path.append(node)
        needs = before[graph.after == node]
        node = int(needs[waits[needs] > 0][0])
    return set(path[path.index(node) :])


def _split_stages(program: Program) -> set[int]:
    return set(np.unique(program.stage[program.kind == Kind.I]).tolist())
