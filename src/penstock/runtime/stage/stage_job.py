"""A stage's forward of one micro-batch, as described to the rank of its forward and to the rank of its backward."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from penstock.runtime.stage.stage import ComputeLoss
from penstock.runtime.tensors import Rows


class StageJob(NamedTuple):
    """A forward, without its input payload."""

    stage: int
    step: int
    rows: Rows
    compute_loss: ComputeLoss | None
    """For the last stage: computes the loss from the output."""
    defer: bool
    """Whether weight gradients are deferred."""
    signature: Any
    """Structure, shapes and types of the batch, and the reduction of its loss."""
    batch: Sequence[Tensor]
    """The tensors of the whole batch."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Determines the shapes of all tensors of the forward."""
        return self.signature, self.stage, self.rows.num, self.defer
