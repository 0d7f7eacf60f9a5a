"""Verification: a distributed run compared with a single process."""

from penstock.runtime.verify.gradient_diff import ReferenceGradients, compare_gradients, copy_gradients
from penstock.runtime.verify.single_process import SingleProcess
from penstock.runtime.verify.state_diff import StateDiff, compare_states

__all__ = ["ReferenceGradients", "SingleProcess", "StateDiff", "compare_gradients", "compare_states", "copy_gradients"]
