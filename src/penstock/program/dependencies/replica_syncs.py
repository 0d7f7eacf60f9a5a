"""Replica syncs: actions in which all replicas of a stage wait for each other, as batch norm over all rows requires."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from penstock.arrays import Int32s
from penstock.program.actions import NONE, Kind
from penstock.program.types import Program

FORWARD_KINDS = (Kind.F,)
BACKWARD_KINDS = (Kind.I, Kind.B)
"""Kinds of actions with a replica sync. I and B of two replicas belong to the same sync."""


class ReplicaSyncs(NamedTuple):
    """The replica syncs of a program."""

    sync_of: Int32s
    """For each action its sync, or NONE. Empty if the program has none."""
    size: Int32s
    """For each sync the number of its actions."""


def find_replica_syncs(program: Program, stages: Collection[int]) -> ReplicaSyncs:
    """Find the replica syncs of a program.

    Args:
        program: A compute program or a lowered one.
        stages: The stages whose replicas sync in each forward and in each backward.
    """
    if not stages:
        return ReplicaSyncs(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32))
    is_backward = np.isin(program.kind, BACKWARD_KINDS)
    is_synced = (is_backward | np.isin(program.kind, FORWARD_KINDS)) & np.isin(program.stage, list(stages))
    actions = np.flatnonzero(is_synced)
    keys = np.stack([is_backward[actions], program.stage[actions], program.microbatch[actions]])
    _, sync = np.unique(keys, axis=1, return_inverse=True)
    sync_of = np.full(program.num_actions, NONE, dtype=np.int32)
    sync_of[actions] = sync.reshape(-1)
    return ReplicaSyncs(sync_of, np.bincount(sync.reshape(-1)).astype(np.int32))
