"""The state of one iteration on a rank: its batch, payloads between actions, graphs, and pending receives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.runtime.layout import BatchRows
from penstock.runtime.loss import LossTerms
from penstock.runtime.tensors import PackedPayload, Rows, slice_payload
from penstock.runtime.transport import PendingReceive

Key: TypeAlias = tuple[int, int, int]
"""Kind of message, stage, micro-batch."""


@dataclass(eq=False)
class _Produced:
    packed: PackedPayload
    rows: Rows
    num_uses: int


@dataclass(eq=False)
class Iteration:
    """One iteration. Every entry is released as soon as its last user has it."""

    step: int
    inputs: Any
    targets: Any
    num_rows: int
    rows: BatchRows
    """By stage and micro-batch: the rows of each replica."""
    signature: Any
    """Structure, shapes and types of the batch."""
    device: torch.device
    """Device of the rows of the batch."""
    first_tag: int = 0
    """Added to the tags of all messages of the iteration."""
    on_output: Callable[[int, PackedPayload, Rows], None] | None = None
    """Called with stage, output and rows after every forward but those of the last stage."""
    produced: dict[Key, _Produced] = field(default_factory=dict)
    """Payloads that actions of this rank produced and others have not used yet."""
    pending: dict[tuple[int, int, int, int], PendingReceive] = field(default_factory=dict)
    """Posted receives, by kind of message, stage, micro-batch and peer."""
    saved_inputs: dict[tuple[int, int], PackedPayload] = field(default_factory=dict)
    """By stage and micro-batch: the input of a forward that is recomputed on this rank."""
    graphs: dict[tuple[int, int], Any] = field(default_factory=dict)
    """By stage and micro-batch: the graph for the backward."""
    losses: dict[int, Tensor] = field(default_factory=dict)
    terms: LossTerms = field(default_factory=LossTerms)
    """How the losses of parts combine."""
    reductions_from: set[int] = field(default_factory=set)
    """Ranks whose reduction has been received."""
    receive_reduction: Callable[[int], None] = lambda _rank: None
    """Blocks until the reduction of a rank has arrived."""
    announce_reduction: Callable[[], None] = lambda: None
    """Sends the reduction to the rank that runs the backward of the loss."""
    loss_scale: float = 1.0
    """What the gradients of the loss are multiplied by."""
    own_loss: Tensor | None = None
    """This rank's part of the loss, once it is computed."""
    loss: Tensor | None = None
    """The loss of the batch, once all parts have arrived."""

    @cached_property
    def tensors(self) -> list[Tensor]:
        """The tensors of the batch."""
        return [leaf for leaf in pytree.tree_leaves((self.inputs, self.targets)) if isinstance(leaf, Tensor)]

    @cached_property
    def loss_targets(self) -> Any:
        """The targets, once the reduction of the loss is known."""
        return self.terms.fill_targets(self.inputs, self.targets)

    def put(self, key: Key, packed: PackedPayload, rows: Rows, users: Sequence[Rows]) -> None:
        """Keep a payload until every user has taken its rows."""
        num_uses = sum(rows.common(user).num > 0 for user in users)
        if num_uses:
            self.produced[key] = _Produced(packed, rows, num_uses)

    def take(self, key: Key, rows: Rows) -> PackedPayload:
        """Return the part of a payload for some rows. Counts as one use."""
        entry = self.produced[key]
        entry.num_uses -= 1
        if not entry.num_uses:
            del self.produced[key]
        return slice_payload(entry.packed, entry.rows, entry.rows.common(rows))
