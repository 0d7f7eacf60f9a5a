"""What passes between stages, taken apart into plain tensors and put together again.

A carry is any nesting of tensors and other values. A tensor that is in it several times travels once. Messages between
devices that have different rows are slices: then every tensor must have its rows first.
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

VALUE = -1
"""Stands in `slots` for something that is not a tensor."""

PLAIN_TREE = pytree.tree_structure(0)
"""That of a carry which is one tensor, as most are: these are not sent through the tree's functions."""


class TensorForm(NamedTuple):
    """What must be known of a tensor before it comes: memory layout too, as kernels add up in its order."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    needs_grad: bool


class Form(NamedTuple):
    """Everything about a carry but the contents of its tensors. It can be pickled: `shape` is the nesting itself."""

    shape: Any
    slots: tuple[int, ...]
    values: tuple[Any, ...]
    tensors: tuple[TensorForm, ...]


@dataclass(frozen=True, eq=False)
class Packed:
    """A carry taken apart; its tensors have no history. Leaf k is tensors[slots[k]], or the next of the values."""

    tree: Any
    slots: tuple[int, ...]
    values: tuple[Any, ...]
    tensors: tuple[Tensor, ...]
    needs_grad: tuple[bool, ...]

    @cached_property
    def form(self) -> Form:
        """What the other side must know."""
        tensors = zip(self.tensors, self.needs_grad, strict=True)
        forms = tuple(TensorForm(tuple(t.shape), dense_stride(t), t.dtype, need) for t, need in tensors)
        return Form(self._nesting(), self.slots, self.values, forms)

    def _nesting(self) -> Any:
        """The structure itself, with the number of each leaf in its place."""
        if self.tree is PLAIN_TREE:
            return 0
        numbers = range(len(self.slots))
        return list(numbers) if self.is_list else pytree.tree_unflatten(numbers, self.tree)

    @property
    def is_list(self) -> bool:
        """Whether it is a plain list, as gradients are: these too are not sent through the tree's functions."""
        return self.tree is _list_tree(len(self.slots))

    def with_tensors(self, tensors: Sequence[Tensor]) -> "Packed":
        """The same with other tensors."""
        return Packed(self.tree, self.slots, self.values, tuple(tensors), self.needs_grad)


def pack(carry: Any) -> tuple[Packed, tuple[Tensor, ...]]:
    """A carry taken apart, and its tensors as they are, with their history."""
    if isinstance(carry, Tensor):
        return Packed(PLAIN_TREE, (0,), (), (carry.detach(),), (carry.requires_grad,)), (carry,)
    if type(carry) is list and all(leaf is None or isinstance(leaf, Tensor) for leaf in carry):
        # Gradients.
        leaves, tree = carry, _list_tree(len(carry))
    else:
        leaves, tree = pytree.tree_flatten(carry)
    place: dict[int, int] = {}
    slots: list[int] = []
    values: list[Any] = []
    tensors: list[Tensor] = []
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            slots.append(VALUE)
            values.append(leaf)
            continue
        if id(leaf) not in place:
            place[id(leaf)] = len(tensors)
            tensors.append(leaf)
        slots.append(place[id(leaf)])
    plain = tuple(tensor.detach() for tensor in tensors)
    needs = tuple(tensor.requires_grad for tensor in tensors)
    return Packed(tree, tuple(slots), tuple(values), plain, needs), tuple(tensors)


@cache
def _list_tree(num: int) -> Any:
    return pytree.tree_structure([0] * num)


def unpack(packed: Packed, tensors: Sequence[Tensor]) -> Any:
    """The carry with these tensors in it."""
    if packed.tree is PLAIN_TREE:
        return tensors[0]
    values = iter(packed.values)
    leaves = [next(values) if slot == VALUE else tensors[slot] for slot in packed.slots]
    return leaves if packed.is_list else pytree.tree_unflatten(leaves, packed.tree)


def from_form(form: Form, tensors: Sequence[Tensor]) -> Packed:
    """A carry that came from elsewhere."""
    needs = tuple(item.needs_grad for item in form.tensors)
    shape = form.shape
    if isinstance(shape, int) and form.tensors:
        tree = PLAIN_TREE
    elif type(shape) is list and shape == list(range(len(form.slots))):
        tree = _list_tree(len(shape))
    else:
        tree = pytree.tree_structure(shape)
    return Packed(tree, form.slots, form.values, tuple(tensors), needs)


def difference(known: Form, found: Form) -> str:
    """What differs between two forms, in words."""
    if len(known.tensors) == len(found.tensors):
        for before, now in zip(known.tensors, found.tensors, strict=True):
            if before != now:
                return (
                    f"a tensor of shape {before.shape} and type {before.dtype} was sent here before, "
                    f"now one of shape {now.shape} and type {now.dtype}"
                )
    return "what is sent here has another structure, or other values that are not tensors, than before"


def take_rows(packed: Packed, have: Rows, want: Rows) -> Packed:
    """The part of a carry with some of its rows."""
    if have == want:
        return packed
    check_rows(packed, have.num)
    start = want.start - have.start
    # Copies, not views: whoever gets them may change them in place.
    return packed.with_tensors([tensor.narrow(0, start, want.num).clone() for tensor in packed.tensors])


def check_rows(packed: Packed, count: int) -> None:
    """Refuse a carry with a tensor that cannot be split by rows."""
    for tensor in packed.tensors:
        if tensor.dim() == 0 or tensor.shape[0] != count:
            raise InputError(
                f"a tensor of shape {tuple(tensor.shape)} passes between devices that have different rows of a "
                f"micro-batch, but its first dimension is not the {count} rows",
                hint="Put rows first in all that blocks hand on, or plan with the same replicas on both sides.",
            )


def join_rows(parts: Sequence[Packed], counts: Sequence[int]) -> Packed:
    """Parts with different rows as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part, count in zip(parts, counts, strict=True):
        check_rows(part, count)
        if (part.tree, part.slots, part.values) != (first.tree, first.slots, first.values):
            raise InputError(
                "the parts of a micro-batch that come from different devices do not have the same structure",
                hint="What a block hands on must not depend on how many rows it was given, except in its tensors.",
            )
    columns = zip(*(part.tensors for part in parts), strict=True)
    return first.with_tensors([torch.cat(column) for column in columns])


def join_gradients(parts: Sequence[Packed], counts: Sequence[int]) -> list[Tensor | None]:
    """Lists of gradients of different rows as one list; where only some have a gradient, the others count as zero."""
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
        pieces = zip(column, counts, strict=True)
        joined.append(torch.cat([known.new_zeros(num, *known.shape[1:]) if x is None else x for x, num in pieces]))
    return joined


def share_memory(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether a change of one of these in place could be seen in one of the others."""
    memory = {tensor.untyped_storage().data_ptr() for tensor in some if tensor.numel()}
    return any(tensor.untyped_storage().data_ptr() in memory for tensor in others if tensor.numel())


def dense_stride(tensor: Tensor) -> tuple[int, ...]:
    """The strides with which a tensor travels: its own if it fills its memory without gaps, else plain ones."""
    if tensor.is_contiguous():
        return tuple(tensor.stride())
    expected = 1
    for _, stride, size in sorted(
        (abs(stride), stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1
    ):
        if stride != expected:
            return _plain_stride(tensor.shape)
        expected *= size
    return tuple(tensor.stride())


def _plain_stride(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if shape else ()


def in_memory_order(tensor: Tensor) -> Tensor:
    """The tensor as the plain run of numbers that lies in memory (a copy if there are gaps)."""
    if tensor.is_contiguous():
        return tensor.reshape(-1)
    if dense_stride(tensor) != tuple(tensor.stride()):
        return tensor.contiguous().view(-1)
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda dim: -strides[dim])
    return tensor.permute(order).reshape(-1)
