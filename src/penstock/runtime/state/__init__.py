"""Model and optimizer state: checkpoints, materialization, names of entries."""

from penstock.runtime.state.checkpoints import (
    DEFAULT_KEEP,
    Checkpoints,
    LoadedCheckpoint,
    RankState,
    find_checkpoints,
    has_checkpoints,
)
from penstock.runtime.state.copies import LoadedCopy, StateCopies
from penstock.runtime.state.meta_device import Init, check_materializable, is_on_meta, materialize, materialize_tensors
from penstock.runtime.state.pretrained_weights import Pretrained, pretrained
from penstock.runtime.state.state_index import holders, state_entries, writers

__all__ = [
    "DEFAULT_KEEP",
    "Checkpoints",
    "Init",
    "LoadedCheckpoint",
    "LoadedCopy",
    "Pretrained",
    "RankState",
    "StateCopies",
    "check_materializable",
    "find_checkpoints",
    "has_checkpoints",
    "holders",
    "is_on_meta",
    "materialize",
    "materialize_tensors",
    "pretrained",
    "state_entries",
    "writers",
]
