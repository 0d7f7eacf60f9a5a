"""Remote backward: a stage's backward on another rank than its forward."""

from penstock.runtime.remote_backward.replay_check import check_recompute
from penstock.runtime.remote_backward.transfer import (
    AS_PLANNED,
    KEPT,
    NOT_RUN,
    PLANNED,
    RecomputeHeader,
    SavedTensorTransfer,
    make_recompute_message,
)

__all__ = [
    "AS_PLANNED",
    "KEPT",
    "NOT_RUN",
    "PLANNED",
    "RecomputeHeader",
    "SavedTensorTransfer",
    "check_recompute",
    "make_recompute_message",
]
