"""Checkpoints: directories of them, their metadata and digests, saving and loading on all ranks."""

from penstock.runtime.state.checkpoints.directory import find_checkpoints, has_checkpoints
from penstock.runtime.state.checkpoints.rank_state import RankState, restore_state
from penstock.runtime.state.checkpoints.store import DEFAULT_KEEP, Checkpoints, LoadedCheckpoint

__all__ = [
    "DEFAULT_KEEP",
    "Checkpoints",
    "LoadedCheckpoint",
    "RankState",
    "find_checkpoints",
    "has_checkpoints",
    "restore_state",
]
