"""Fingerprints of autograd graphs: nodes, edges and plain attributes.

Two forwards with equal fingerprints have the same backward, as far as can be seen. A graph that depends on the values
of tensors (a branch, an `.item()`) has different fingerprints for different inputs.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class NotComparable(Exception):  # noqa: N818
    """The graph contains something that cannot be compared. The message says what."""


def fingerprint(outputs: Sequence[GradientEdge], parameters: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """Compute the fingerprint of a graph whose saved tensors are replaced by their indices.

    Args:
        outputs: The gradient edges of the outputs.
        parameters: The only tensors that autograd functions written in Python may keep as attributes.

    Raises:
        NotComparable: The graph contains something that cannot be compared.
    """
    names = {id(item): name for name, item in parameters.items()}
    indices: dict[Any, int] = {}
    nodes: list[Any] = []

    def index_of(node: Any) -> int:
        if node is None:
            return -1
        if node not in indices:
            indices[node] = len(nodes)
            nodes.append(node)
        return indices[node]

    entries: list[Any] = [(index_of(edge.node), edge.output_nr) for edge in outputs]
    # The loop appends to `nodes`.
    for node in nodes:
        edges = [(index_of(target), output) for target, output in node.next_functions]
        entries.append((type(node).__name__, tuple(edges), _values(node, names)))
    return tuple(entries)


def _values(node: Any, names: Mapping[int, str]) -> tuple[Any, ...]:
    if hasattr(node, "variable"):
        # A leaf: the parameter that the gradient is for.
        return (names.get(id(node.variable)),)
    attributes = getattr(node, "__dict__", None)
    if attributes is not None:
        saved_indices = tuple(_saved(item) for item in node._raw_saved_tensors or ())
        return (*((name, _plain(value, names, node)) for name, value in attributes.items()), saved_indices)
    kind: Any = type(node)
    plain, tensors = _attribute_names(kind)
    raw_values = [getattr(node, name) for name in plain]
    values = [value if isinstance(value, PLAIN) else repr(value) for value in raw_values]
    for name in tensors:
        saved = getattr(node, name)
        values += [_saved(item) for item in (saved if isinstance(saved, tuple | list) else [saved])]
    return tuple(values)


@cache
def _attribute_names(kind: Hashable) -> tuple[list[str], list[str]]:
    """The names of a node's plain attributes, and of its saved tensors in raw form (not unpacked)."""
    names = dir(kind)
    raw = [name for name in names if name.startswith("_raw_saved_")]
    plain = [name for name in names if name.startswith("_saved_") and f"_raw{name}" not in raw]
    return plain, raw


def _saved(saved: Any) -> Any:
    """The index of a saved tensor. A Python scalar that was multiplied with is saved as it is: hooks do not see it."""
    if not hasattr(saved, "data"):
        raise NotComparable("this version of torch does not expose the saved tensors of a graph")
    data = saved.data
    if isinstance(data, Tensor) and data.dim() == 0:
        return data.item()
    if data is not None and not isinstance(data, int):
        raise NotComparable("it uses its own saved-tensor hooks, as torch.utils.checkpoint does")
    return data


def _plain(value: Any, names: Mapping[int, str], node: Any) -> Any:
    """A comparable form of a value. Objects are compared by type only."""
    if isinstance(value, Tensor):
        if id(value) not in names:
            name = type(node).__name__.removesuffix("Backward")
            raise NotComparable(
                f"the autograd function {name} keeps tensors as attributes instead of using save_for_backward"
            )
        return names[id(value)]
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, list | tuple):
        return tuple(_plain(item, names, node) for item in value)
    if isinstance(value, dict):
        return tuple((repr(key), _plain(item, names, node)) for key, item in value.items())
    return type(value).__name__
