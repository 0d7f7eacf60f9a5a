"""Tensors as bounds of slices, as in `x[: lengths.max()]`, which torch converts to numbers by itself.

Forward then uses their data as if it had called `int`. Both the recorder and the partial run make this call.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

_INDEXING = frozenset(("__getitem__", "__setitem__"))


def with_numbers(name: str, args: tuple[Any, ...], read: Callable[[Tensor], Any]) -> tuple[Any, ...]:
    """Return the arguments of a torch function with numbers as the bounds of slices. `read` converts a tensor."""
    if name not in _INDEXING or not _has_tensors(args[1]):
        return args
    index = args[1]
    items = tuple(_slice(item, read) for item in index) if isinstance(index, tuple) else _slice(index, read)
    return (args[0], items, *args[2:])


def _has_tensors(index: Any) -> bool:
    items = index if isinstance(index, tuple) else (index,)
    return any(
        isinstance(bound, Tensor)
        for item in items
        if isinstance(item, slice)
        for bound in (item.start, item.stop, item.step)
    )


def _slice(item: Any, read: Callable[[Tensor], Any]) -> Any:
    if not isinstance(item, slice):
        return item
    return slice(*(read(bound) if isinstance(bound, Tensor) else bound for bound in (item.start, item.stop, item.step)))
