"""Running a program on torch.distributed with the numbers of a single process. Everything here needs torch."""

from penstock.runtime.batch_source import check_same_batch, repeated, with_own_numbers
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.training_loop import Recipe, StepDone, train_steps

__all__ = ["Pipeline", "Recipe", "StepDone", "check_same_batch", "repeated", "train_steps", "with_own_numbers"]
