"""The storages that a layer saves for its backward, and what its parts in torch.utils.checkpoint save again.

A part in torch.utils.checkpoint saves only its input in the forward. In the backward it runs again, and what it saves
then is kept until the backward of the part has ended.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import checkpoint as torch_checkpoint

from penstock.model.tracing import Placeholder

Note = Callable[[dict[int, int], Tensor], Tensor]
"""Notes the storage of a saved tensor: its address and its bytes."""
HOOK = "_checkpoint_hook"
"""The hooks under which torch runs a checkpointed part in the forward (use_reentrant=False)."""


def note_in(parameters: Collection[int]) -> Note:
    """Return a function that notes a saved tensor, unless it is one of these parameters as autocast has cast it.

    Args:
        parameters: The ids of the parameters.
    """

    def note(kept: dict[int, int], tensor: Tensor) -> Tensor:
        if isinstance(tensor, Placeholder) or _is_cast(tensor, parameters):
            return tensor  # a wrapper around a block that does not run saves the placeholders it was called with
        with torch._C.DisableTorchFunction():  # otherwise this call would count as an event of forward
            storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    return note


def _is_cast(tensor: Tensor, parameters: Collection[int]) -> bool:
    """Whether a tensor is one of these parameters as autocast has cast it."""
    with torch._C.DisableTorchFunction():
        node = tensor.grad_fn
    if node is None or not node.name().startswith("ToCopyBackward"):
        return False
    return id(getattr(node.next_functions[0][0], "variable", None)) in parameters


class Recomputed(NamedTuple):
    """Bytes that checkpointed parts save when they run again."""

    largest: int = 0
    """The largest part."""
    total: int = 0
    """All parts."""


class CheckpointedParts:
    """Collects what the checkpointed parts of a layer save.

    Args:
        note: Notes a saved tensor.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._parts: list[dict[int, int]] = []

    @contextmanager
    def in_forward(self) -> Iterator[None]:
        """Context of a forward in which checkpointed parts save all tensors at once, which are noted."""
        parts, note = self._parts, self._note

        class Hooks(saved_tensors_hooks):
            def __init__(self, *_args: Any) -> None:
                part: dict[int, int] = {}
                parts.append(part)
                super().__init__(lambda tensor: note(part, tensor), lambda tensor: tensor)

        with patch.object(torch_checkpoint, HOOK, Hooks):
            yield

    @contextmanager
    def in_backward(self) -> Iterator[None]:
        """Context of a backward in which parts with use_reentrant=True run again. They count as one part."""
        part: dict[int, int] = {}
        self._parts.append(part)
        with saved_tensors_hooks(lambda tensor: self._note(part, tensor), lambda tensor: tensor):
            yield

    def recomputed(self, without: Collection[int]) -> Recomputed:
        """Return the bytes of all storages but those at these addresses."""
        sizes = [sum(size for key, size in part.items() if key not in without) for part in self._parts]
        return Recomputed(max(sizes, default=0), sum(sizes))
