"""Model and optimizer state: checkpoints, materialization, state names."""

from penstock.runtime.state.checkpoint import DEFAULT_KEEP, Checkpoints, Holdings, Loaded
from penstock.runtime.state.checkpoint_dir import find_checkpoints
from penstock.runtime.state.meta_device import Init, check_fillable, is_on_meta, make_real, materialize
from penstock.runtime.state.state_index import state_entries, writers

__all__ = [
    "DEFAULT_KEEP",
    "Checkpoints",
    "Holdings",
    "Init",
    "Loaded",
    "check_fillable",
    "find_checkpoints",
    "is_on_meta",
    "make_real",
    "materialize",
    "state_entries",
    "writers",
]
