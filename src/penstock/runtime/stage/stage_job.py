"""A stage's forward of one micro-batch, as the ranks that run it and go back through it both know it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from penstock.runtime.stage.stage import Finish
from penstock.runtime.tensors import Rows


class Job(NamedTuple):
    """Everything but what comes in."""

    stage: int
    step: int
    rows: Rows
    finish: Finish | None
    defer: bool
    """Whether its weight gradients are put off."""
    signature: Any
    batch: Sequence[Tensor]
    """The tensors of the whole batch."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What decides the shapes in it."""
        return self.signature, self.stage, self.rows.num, self.defer
