"""Sharded optimizers: the part of a stage's optimizer step and state that each replica has.

Replica i of r has 1/r of the elements of the stage's trained parameters, except of those that other stages share: they
are reduced over all stages that have them, and every device steps them in full.
"""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.plan.pricing.parameter_owners import Ties


class OptimizerShards(NamedTuple):
    """The share of a stage's optimizer that a replica has, and the bytes of parameters that it leaves to the others."""

    step_share: Floats
    left_bytes: Floats


def optimizer_shards(sharded: Bools, num_replicas: Ints, trained_bytes: Floats, ties: Ties) -> OptimizerShards:
    """Over stages: the share of the step that each replica runs, and the bytes that it has no optimizer state for.

    >>> from penstock.plan.pricing.parameter_owners import Ties
    >>> shards = optimizer_shards(np.array([True, False]), np.array([4, 2]), np.array([8.0, 8.0]), Ties((), ()))
    >>> shards.step_share.tolist(), shards.left_bytes.tolist()
    ([0.25, 1.0], [6.0, 0.0])
    """
    own = trained_bytes.copy()
    for size, stages in zip(ties.num_bytes, ties.stages, strict=True):
        own[list(stages)] -= size
    left = np.where(sharded, np.maximum(own, 0.0) * (1 - 1 / num_replicas), 0.0)
    share = 1 - np.divide(left, trained_bytes, out=np.zeros_like(left), where=trained_bytes > 0)
    return OptimizerShards(share, left)
