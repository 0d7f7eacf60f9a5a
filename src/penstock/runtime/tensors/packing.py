"""Payloads: activations between stages as flat lists of tensors.

Activations are any nesting of tensors and other values. A tensor that occurs several times is sent once. Messages
between replicas with different rows are slices; then the first dimension of every tensor must be the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.runtime.tensors.rows import Rows

NOT_A_TENSOR = -1
"""Marks in `slots` a leaf that is not a tensor."""

PLAIN_TREE = pytree.tree_structure(0)
"""The structure of a single tensor, the most common payload. It bypasses the functions of pytree."""


class TensorMeta(NamedTuple):
    """Metadata of a tensor to receive. It includes the memory layout, because kernels sum in its order."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    needs_grad: bool


class PayloadMeta(NamedTuple):
    """Metadata of a payload: everything but the contents of its tensors. It can be pickled."""

    nesting: Any
    """The structure itself, with the index of each leaf in its position."""
    slots: tuple[int, ...]
    values: tuple[Any, ...]
    tensors: tuple[TensorMeta, ...]


@dataclass(frozen=True, eq=False)
class PackedPayload:
    """A payload as a flat list of detached tensors. Leaf k is `tensors[slots[k]]`, or the next one of `values`."""

    tree: Any
    slots: tuple[int, ...]
    values: tuple[Any, ...]
    tensors: tuple[Tensor, ...]
    needs_grad: tuple[bool, ...]

    @cached_property
    def meta(self) -> PayloadMeta:
        """The metadata that a receiver needs."""
        tensors = zip(self.tensors, self.needs_grad, strict=True)
        metas = tuple(TensorMeta(tuple(t.shape), dense_stride(t), t.dtype, need) for t, need in tensors)
        return PayloadMeta(self._nesting(), self.slots, self.values, metas)

    def _nesting(self) -> Any:
        if self.tree is PLAIN_TREE:
            return 0
        indices = range(len(self.slots))
        return list(indices) if self.is_list else pytree.tree_unflatten(indices, self.tree)

    @property
    def is_list(self) -> bool:
        """Whether the payload is a plain list, as gradients are. Lists bypass the functions of pytree too."""
        return self.tree is _list_tree(len(self.slots))

    def with_tensors(self, tensors: Sequence[Tensor]) -> "PackedPayload":
        """The same payload with other tensors."""
        return PackedPayload(self.tree, self.slots, self.values, tuple(tensors), self.needs_grad)


def pack(payload: Any) -> tuple[PackedPayload, tuple[Tensor, ...]]:
    """Flatten a payload.

    Returns:
        The packed payload, whose tensors are detached, and the original tensors with their autograd history.
    """
    if isinstance(payload, Tensor):
        return PackedPayload(PLAIN_TREE, (0,), (), (payload.detach(),), (payload.requires_grad,)), (payload,)
    if type(payload) is list and all(leaf is None or isinstance(leaf, Tensor) for leaf in payload):
        # Gradients.
        leaves, tree = payload, _list_tree(len(payload))
    else:
        leaves, tree = pytree.tree_flatten(payload)
    indices: dict[int, int] = {}
    slots: list[int] = []
    values: list[Any] = []
    tensors: list[Tensor] = []
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            slots.append(NOT_A_TENSOR)
            values.append(leaf)
            continue
        if id(leaf) not in indices:
            indices[id(leaf)] = len(tensors)
            tensors.append(leaf)
        slots.append(indices[id(leaf)])
    plain = tuple(tensor.detach() for tensor in tensors)
    needs = tuple(tensor.requires_grad for tensor in tensors)
    return PackedPayload(tree, tuple(slots), tuple(values), plain, needs), tuple(tensors)


@cache
def _list_tree(num: int) -> Any:
    return pytree.tree_structure([0] * num)


def unpack(packed: PackedPayload, tensors: Sequence[Tensor]) -> Any:
    """Rebuild a payload with these tensors in it."""
    if packed.tree is PLAIN_TREE:
        return tensors[0]
    values = iter(packed.values)
    leaves = [next(values) if slot == NOT_A_TENSOR else tensors[slot] for slot in packed.slots]
    return leaves if packed.is_list else pytree.tree_unflatten(leaves, packed.tree)


def payload_from_meta(meta: PayloadMeta, tensors: Sequence[Tensor]) -> PackedPayload:
    """Build a received payload from its metadata and tensors."""
    needs = tuple(item.needs_grad for item in meta.tensors)
    nesting = meta.nesting
    if isinstance(nesting, int) and meta.tensors:
        tree = PLAIN_TREE
    elif type(nesting) is list and nesting == list(range(len(meta.slots))):
        tree = _list_tree(len(nesting))
    else:
        tree = pytree.tree_structure(nesting)
    return PackedPayload(tree, meta.slots, meta.values, tuple(tensors), needs)


def describe_difference(expected: PayloadMeta, actual: PayloadMeta) -> str:
    """Describe how two payloads differ, for an error message."""
    if len(expected.tensors) == len(actual.tensors):
        for before, now in zip(expected.tensors, actual.tensors, strict=True):
            if before != now:
                return (
                    f"expected a tensor of shape {before.shape} and type {before.dtype} as in earlier messages, got "
                    f"shape {now.shape} and type {now.dtype}"
                )
    return "the payload has another structure, or other values that are not tensors, than in earlier messages"


def slice_payload(packed: PackedPayload, held: Rows, rows: Rows) -> PackedPayload:
    """The part of a payload with some of its rows.

    Args:
        packed: The payload.
        held: The rows of the payload.
        rows: The rows to take.
    """
    if held == rows:
        return packed
    check_rows(packed, held.num)
    start = rows.start - held.start
    # Copies, not views: the receiver may change them in place.
    return packed.with_tensors([tensor.narrow(0, start, rows.num).clone() for tensor in packed.tensors])


def check_rows(packed: PackedPayload, num_rows: int) -> None:
    """Reject a payload with a tensor that cannot be split by rows.

    Raises:
        InputError: The first dimension of a tensor is not the number of rows.
    """
    for tensor in packed.tensors:
        if tensor.dim() == 0 or tensor.shape[0] != num_rows:
            raise InputError(
                f"a tensor of shape {tuple(tensor.shape)} is sent between replicas with different rows of a "
                f"micro-batch, so its first dimension must be the number of rows ({num_rows})",
                hint="Put rows first in all outputs of layers, or plan the same replicas on both sides.",
            )


def join_rows(parts: Sequence[PackedPayload], counts: Sequence[int]) -> PackedPayload:
    """Concatenate payloads with different rows.

    Args:
        parts: The payloads, in the order of their rows.
        counts: The number of rows of each.

    Raises:
        InputError: The payloads differ in structure, or cannot be concatenated by rows.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    for part, count in zip(parts, counts, strict=True):
        check_rows(part, count)
        if (part.tree, part.slots, part.values) != (first.tree, first.slots, first.values):
            raise InputError(
                "the parts of a micro-batch from different replicas differ in structure",
                hint="Apart from its tensors, the output of a layer must not depend on the number of rows.",
            )
    columns = zip(*(part.tensors for part in parts), strict=True)
    return first.with_tensors([torch.cat(column) for column in columns])


def join_gradients(parts: Sequence[PackedPayload], counts: Sequence[int]) -> list[Tensor | None]:
    """Concatenate lists of gradients for different rows. Where only some parts have a gradient, the others are zero."""
    lists: list[list[Tensor | None]] = [unpack(part, part.tensors) for part in parts]
    if len(lists) == 1:
        return lists[0]
    for part, count in zip(parts, counts, strict=True):
        check_rows(part, count)
    joined: list[Tensor | None] = []
    for column in zip(*lists, strict=True):
        known = next((item for item in column if item is not None), None)
        if known is None:
            joined.append(None)
            continue
        pairs = zip(column, counts, strict=True)
        joined.append(torch.cat([known.new_zeros(num, *known.shape[1:]) if x is None else x for x, num in pairs]))
    return joined


def share_memory(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether an in-place change of one of `some` could be visible in one of `others`."""
    memory = {tensor.untyped_storage().data_ptr() for tensor in some if tensor.numel()}
    return any(tensor.untyped_storage().data_ptr() in memory for tensor in others if tensor.numel())


def dense_stride(tensor: Tensor) -> tuple[int, ...]:
    """The strides of a tensor after it was sent: its own if it is dense in memory, else those of a contiguous one."""
    if tensor.is_contiguous():
        return tuple(tensor.stride())
    expected = 1
    for _, stride, size in sorted(
        (abs(stride), stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1
    ):
        if stride != expected:
            return _contiguous_stride(tensor.shape)
        expected *= size
    return tuple(tensor.stride())


def _contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if shape else ()


def flatten_dense(tensor: Tensor) -> Tensor:
    """The elements of a tensor in memory order, as one dimension. A tensor with gaps is copied."""
    if tensor.is_contiguous():
        return tensor.reshape(-1)
    if dense_stride(tensor) != tuple(tensor.stride()):
        return tensor.contiguous().view(-1)
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda dim: -strides[dim])
    return tensor.permute(order).reshape(-1)
