"""Backward passes on another rank than their forward."""

from penstock.runtime.remote_backward.replay_check import require_the_same_again
from penstock.runtime.remote_backward.transfer import (
    AS_PLANNED,
    KEPT,
    NOT_RUN,
    PLANNED,
    InputOnly,
    Shipping,
    input_message,
)

__all__ = [
    "AS_PLANNED",
    "KEPT",
    "NOT_RUN",
    "PLANNED",
    "InputOnly",
    "Shipping",
    "input_message",
    "require_the_same_again",
]
