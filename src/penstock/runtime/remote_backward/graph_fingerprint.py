"""Marks of an autograd graph: its nodes, how they hang together, and the plain values in them.

Two forwards with equal marks go back the same way, as far as that can be seen: a graph that depends on what is in the
tensors (a branch, an `.item()`) has other marks for other inputs.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class Unmarkable(Exception):  # noqa: N818
    """The graph holds something that cannot be compared; the text says what."""


def marks(outputs: Sequence[GradientEdge], parameters: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """The marks of a graph whose saved tensors were replaced by their numbers.

    Functions written in Python may keep no tensors on themselves but these `parameters`.
    """
    names = {id(item): name for name, item in parameters.items()}
    number: dict[Any, int] = {}
    nodes: list[Any] = []

    def numbered(node: Any) -> int:
        if node is None:
            return -1
        if node not in number:
            number[node] = len(nodes)
            nodes.append(node)
        return number[node]

    found: list[Any] = [(numbered(edge.node), edge.output_nr) for edge in outputs]
    # More nodes are found on the way.
    for node in nodes:
        following = [(numbered(after), which) for after, which in node.next_functions]
        found.append((type(node).__name__, tuple(following), _values(node, names)))
    return tuple(found)


def _values(node: Any, names: Mapping[int, str]) -> tuple[Any, ...]:
    if hasattr(node, "variable"):
        # The end of a graph: which parameter the gradient is for.
        return (names.get(id(node.variable)),)
    kept = getattr(node, "__dict__", None)
    if kept is not None:
        numbers = tuple(_saved(item) for item in node._raw_saved_tensors or ())
        return (*((name, _plain(value, names, node)) for name, value in kept.items()), numbers)
    kind: Any = type(node)
    plain, tensors = _kept_by(kind)
    values = [getattr(node, name) for name in plain]
    found = [value if isinstance(value, PLAIN) else repr(value) for value in values]
    for name in tensors:
        saved = getattr(node, name)
        found += [_saved(item) for item in (saved if isinstance(saved, tuple | list) else [saved])]
    return tuple(found)


@cache
def _kept_by(kind: Hashable) -> tuple[list[str], list[str]]:
    """The names of what such a node keeps: plain values, and saved tensors (in their raw form, not unpacked)."""
    names = dir(kind)
    raw = [name for name in names if name.startswith("_raw_saved_")]
    plain = [name for name in names if name.startswith("_saved_") and f"_raw{name}" not in raw]
    return plain, raw


def _saved(saved: Any) -> Any:
    """The number of a saved tensor. A number that was multiplied with is kept as it is: hooks do not see it."""
    if not hasattr(saved, "data"):
        raise Unmarkable("this version of torch does not show what a graph has saved")
    found = saved.data
    if isinstance(found, Tensor) and found.dim() == 0:
        return found.item()
    if found is not None and not isinstance(found, int):
        raise Unmarkable("it handles saved tensors itself, as torch.utils.checkpoint does")
    return found


def _plain(value: Any, names: Mapping[int, str], node: Any) -> Any:
    """A value as something that can be compared; objects only by their type."""
    if isinstance(value, Tensor):
        if id(value) not in names:
            name = type(node).__name__.removesuffix("Backward")
            raise Unmarkable(f"the function {name} keeps tensors on itself, not by save_for_backward")
        return names[id(value)]
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, list | tuple):
        return tuple(_plain(item, names, node) for item in value)
    if isinstance(value, dict):
        return tuple((repr(key), _plain(item, names, node)) for key, item in value.items())
    return type(value).__name__
