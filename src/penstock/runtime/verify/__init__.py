"""Comparing a run with a single process."""

from penstock.runtime.verify.gradient_diff import Following, compare_gradients, gradients_of
from penstock.runtime.verify.single_process import Alone
from penstock.runtime.verify.state_diff import Sameness, compare_states

__all__ = ["Alone", "Following", "Sameness", "compare_gradients", "compare_states", "gradients_of"]
