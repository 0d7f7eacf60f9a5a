"""Runs a program on torch.distributed, with the results of a single process. Requires torch."""

from penstock.runtime.batch_source import check_same_batch, repeat_sample, with_own_rng
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.training_loop import Recipe, train_steps

__all__ = ["Pipeline", "Recipe", "check_same_batch", "repeat_sample", "train_steps", "with_own_rng"]
