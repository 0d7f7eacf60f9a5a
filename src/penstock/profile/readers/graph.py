"""Conversion of an operator graph to a chain of layers, shared by the readers of published profiles.

1. Order the nodes topologically, the lowest ready number first.
2. A node with parameters starts a layer, which includes the nodes without parameters that follow it.
3. The bytes of a cut are all tensors alive across it: produced before the cut (or inputs of the model), used after it.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import msgspec

from penstock.errors import InputError
from penstock.profile.limits import MAX_BYTES, MAX_MICRO_BATCH_SIZE, MAX_SECONDS
from penstock.profile.spread import PUBLISHED
from penstock.profile.types import Profile, Sizes, Times, Unit

_SHOWN_IN_CYCLE = 12


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, or (`is_input`) an input of the model, which costs nothing to compute."""

    number: int
    label: str
    forward_s: float
    backward_s: float
    parameter_bytes: int
    is_input: bool = False

    @property
    def name(self) -> str:
        """The number, and the label if there is one.

        >>> Node(number=4, label="Conv2d", forward_s=0, backward_s=0, parameter_bytes=0).name
        'node4 Conv2d'
        """
        return f"node{self.number} {self.label}".rstrip()


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """An output of one node and the nodes that use it."""

    source: int
    size_bytes: int
    users: tuple[int, ...]


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The layers, each as its nodes in order, and the tensors between the nodes."""

    units: tuple[tuple[Node, ...], ...]
    tensors: tuple[Tensor, ...]

    def cut_bytes(self) -> list[int]:
        """Return the bytes alive across the cut after each layer; 0 after the last."""
        unit_of = self._unit_of_node()
        changes = [0] * (len(self.units) + 1)
        for tensor in self.tensors:
            begin = unit_of.get(tensor.source, 0)  # an input of the model is alive from the start
            end = max((unit_of[user] for user in tensor.users), default=begin)
            if end > begin:
                changes[begin] += tensor.size_bytes
                changes[end] -= tensor.size_bytes
        return list(accumulate(changes[:-1]))

    def used_bytes(self) -> list[int]:
        """Return the bytes of the input tensors of each layer's nodes, each tensor once."""
        unit_of = self._unit_of_node()
        used = [0] * len(self.units)
        for tensor in self.tensors:
            for unit in {unit_of[user] for user in tensor.users}:
                used[unit] += tensor.size_bytes
        return used

    def _unit_of_node(self) -> dict[int, int]:
        return {node.number: index for index, unit in enumerate(self.units) for node in unit}


def linearise(
    nodes: Sequence[Node], tensors: Sequence[Tensor], *, where: str, where_edge: Callable[[int, int], str]
) -> Chain:
    """Group the nodes of a graph into a chain of layers. Of the model's inputs only their tensors are in the chain."""
    real = {node.number: node for node in nodes if not node.is_input}
    if not real:
        what = "every node is an input of the model" if nodes else "there are no nodes"
        raise InputError(what, where=where, hint="A profile needs at least one node that is not an input.")
    edges = {(tensor.source, user) for tensor in tensors if tensor.source in real for user in tensor.users}
    units: list[list[Node]] = []
    for number in _topological(real, edges, where_edge):
        node = real[number]
        if node.parameter_bytes > 0 or not units:
            units.append([])
        units[-1].append(node)
    return Chain(units=tuple(map(tuple, units)), tensors=tuple(tensors))


def chain_profile(
    chain: Chain,
    saved_bytes: Sequence[int],
    *,
    name: str,
    micro_batch_size: int,
    kind: str,
    where: str,
    assumptions: Iterable[str],
) -> Profile:
    """Build the profile of a chain. The backward is divided into input gradient and weight gradient."""
    if not 1 <= micro_batch_size <= MAX_MICRO_BATCH_SIZE:
        raise InputError(f"micro-batch size must be 1 to {MAX_MICRO_BATCH_SIZE:,}, not {micro_batch_size:,}")
    numbers = {node.number for unit in chain.units for node in unit}
    input_bytes = sum(tensor.size_bytes for tensor in chain.tensors if tensor.source not in numbers)
    units = []
    for nodes, cut, saved in zip(chain.units, chain.cut_bytes(), saved_bytes, strict=True):
        at = f"{where}, layer {nodes[0].name!r}"
        parameters = check_bytes(sum(node.parameter_bytes for node in nodes), "total size of parameters", at)
        forward = check_seconds(math.fsum(node.forward_s for node in nodes), "total forward time", at)
        backward = check_seconds(math.fsum(node.backward_s for node in nodes), "total backward time", at)
        weight_grad = backward / 2 if parameters else 0.0
        times = Times(
            kind=kind,
            micro_batch_size=micro_batch_size,
            forward_s=forward,
            input_grad_s=backward - weight_grad,
            weight_grad_s=weight_grad,
        )
        sizes = Sizes(
            micro_batch_size=micro_batch_size,
            cut_bytes=check_bytes(cut, "total size of the cut", at),
            saved_bytes=check_bytes(saved, "total size of saved tensors", at),
        )
        units.append(Unit(name=nodes[0].name, parameter_bytes=parameters, sizes=(sizes,), times=(times,)))
    return Profile(
        name=name,
        micro_batch_size=micro_batch_size,
        units=tuple(units),
        input_bytes=check_bytes(input_bytes, "size of the model's input", where),
        assumptions=tuple(assumptions),
        spread=PUBLISHED,
    )


def check_seconds(value: float, what: str, where: str) -> float:
    """Return the value, or raise an error if it is outside the range of a profile's times."""
    if not 0 <= value <= MAX_SECONDS:
        raise InputError(_range_problem(value, what, f"{MAX_SECONDS:,.0f} seconds"), where=where)
    return value


def check_bytes(value: float, what: str, where: str) -> int:
    """Return the value as whole bytes, or raise an error if it is outside the range of a profile's sizes."""
    if not 0 <= value <= MAX_BYTES:
        raise InputError(_range_problem(value, what, "2**60 bytes"), where=where)
    return round(value)


def _range_problem(value: float, what: str, most: str) -> str:
    # Arbitrarily long integers must not be converted to float.
    if isinstance(value, float) and not math.isfinite(value):
        return f"{what} must be finite, not {value}"
    return f"{what} must not be negative" if value < 0 else f"{what} exceeds {most}"


def _topological(
    nodes: dict[int, Node], edges: set[tuple[int, int]], where_edge: Callable[[int, int], str]
) -> list[int]:
    successors: dict[int, list[int]] = {number: [] for number in nodes}
    missing = dict.fromkeys(nodes, 0)
    for source, user in edges:
        successors[source].append(user)
        missing[user] += 1
    ready = [number for number, count in missing.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for user in successors[number]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        stuck = nodes.keys() - set(order)
        _raise_cycle({user: source for source, user in sorted(edges) if source in stuck}, min(stuck), where_edge)
    return order


def _raise_cycle(predecessor: dict[int, int], start: int, where_edge: Callable[[int, int], str]) -> None:
    """Raise an error that shows a cycle. Every stuck node has a stuck predecessor, so walking back ends in one."""
    path = [start]
    seen = {start: 0}
    while (before := predecessor[path[-1]]) not in seen:
        seen[before] = len(path)
        path.append(before)
    cycle = path[seen[before] :][::-1]
    lowest = cycle.index(min(cycle))
    cycle = cycle[lowest:] + cycle[:lowest]
    shown = [f"node{number}" for number in cycle[:_SHOWN_IN_CYCLE]]
    if len(cycle) > _SHOWN_IN_CYCLE:
        shown.append(f"... ({len(cycle)} nodes)")
    raise InputError(
        f"the graph has a cycle: {' -> '.join([*shown, shown[0]])}",
        where=where_edge(cycle[-1], cycle[0]),
        hint="Remove one of these edges.",
    )
