"""Lists with an item for every row of the batch, such as the boxes of each image.

Detection models take their labels as a list of dicts, whose tensors have other sizes in every row. Such a list is a
`RowList` within Penstock: it is divided where tensors are divided along their first dimension. Any list of dicts is
one. A list of tensors is not, because each of its tensors may have all rows.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from torch import Tensor
from torch.utils import _pytree as pytree

T = TypeVar("T")


class RowList(list[T]):
    """A list with an item for every row."""

    __slots__ = ()


pytree.register_pytree_node(
    RowList,
    lambda items: (list(items), None),
    lambda items, _context: RowList(items),
    serialized_type_name="penstock.model.RowList",
    flatten_with_keys_fn=lambda items: ([(pytree.SequenceKey(index), item) for index, item in enumerate(items)], None),
)


def is_row_list(node: Any) -> bool:
    """Whether a node of a tree is a list with an item for every row."""
    return type(node) is RowList


def map_batch(tree: Any, change: Callable[[Tensor], Any], change_list: Callable[[RowList[Any]], Iterable[Any]]) -> Any:
    """Return a batch in which each tensor outside of such lists and each such list is replaced.

    Args:
        tree: The batch.
        change: Returns what replaces a tensor.
        change_list: Returns the items of the new list.
    """

    def replace(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return change(leaf)
        return RowList(change_list(leaf)) if is_row_list(leaf) else leaf

    return replace(tree) if isinstance(tree, Tensor) else pytree.tree_map(replace, tree, is_leaf=is_row_list)


def split_batch(tree: Any) -> tuple[list[Tensor], list[RowList[Any]]]:
    """Return the tensors of a batch outside of lists with an item for every row, and these lists."""
    if isinstance(tree, Tensor):
        return [tree], []
    leaves = pytree.tree_leaves(tree, is_leaf=is_row_list)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)], [leaf for leaf in leaves if is_row_list(leaf)]


def resized(items: Sequence[T], num: int) -> Iterable[T]:
    """Return the first items, repeated from the start if there are fewer."""
    return [items[index % len(items)] for index in range(num)]
