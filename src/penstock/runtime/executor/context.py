"""What one iteration holds on a rank: its batch, what was made and not yet used, and what is on its way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.program import Kind
from penstock.runtime.stage import Graph
from penstock.runtime.tensors import Packed, Rows, take_rows
from penstock.runtime.transport import Pending

Key: TypeAlias = tuple[Kind, int, int]
"""What, of which stage, of which micro-batch."""


@dataclass(eq=False)
class _Made:
    packed: Packed
    rows: Rows
    num_uses: int


@dataclass(eq=False)
class Iteration:
    """One iteration. Everything in it is let go of as soon as the last that needs it has it."""

    step: int
    inputs: Any
    targets: Any
    num_rows: int
    rows: list[list[tuple[Rows, ...]]]
    """By stage and micro-batch: the rows of each member."""
    signature: Any
    device: torch.device
    """Where the rows of the batch are needed."""
    first_tag: int = 0
    """Where the numbers of its messages begin."""
    look: Callable[[int, Packed, Rows], None] | None = None
    """Is shown what the forward of a stage made, and for which rows."""
    made: dict[Key, _Made] = field(default_factory=dict)
    pending: dict[tuple[Kind, int, int, int], Pending] = field(default_factory=dict)
    kept: dict[tuple[int, int], Packed] = field(default_factory=dict)
    """By stage and micro-batch: what came in, where the forward runs again."""
    graphs: dict[tuple[int, int], Graph] = field(default_factory=dict)
    losses: dict[int, Tensor] = field(default_factory=dict)
    loss_part: Tensor | None = None
    """This rank's part of the loss, when it is known."""

    @cached_property
    def tensors(self) -> list[Tensor]:
        """The tensors of the batch."""
        return [leaf for leaf in pytree.tree_leaves((self.inputs, self.targets)) if isinstance(leaf, Tensor)]

    def put(self, key: Key, packed: Packed, rows: Rows, wanted: Sequence[Rows]) -> None:
        """Keep what was made for all that have some of its rows."""
        num_uses = sum(rows.common(want).num > 0 for want in wanted)
        if num_uses:
            self.made[key] = _Made(packed, rows, num_uses)

    def take(self, key: Key, want: Rows) -> Packed:
        """The part of what was made that somebody wants."""
        found = self.made[key]
        found.num_uses -= 1
        if not found.num_uses:
            del self.made[key]
        return take_rows(found.packed, found.rows, found.rows.common(want))
