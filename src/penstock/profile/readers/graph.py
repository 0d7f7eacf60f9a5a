"""From a graph of operators to a chain of units: what the readers of published profiles share.

1. Order the nodes topologically, the lowest ready number first.
2. A node with parameters starts a unit and takes in the nodes without parameters that follow it.
3. A cut's bytes are all tensors alive across it: made before (or given to the model), and used after.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import msgspec

from penstock.errors import InputError
from penstock.profile.types import MAX_BYTES, MAX_MICRO_BATCH_SIZE, MAX_SECONDS, Profile, Sizes, Times, Unit

_SHOWN_IN_CYCLE = 12


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, or (`is_input`) something given to the model, which costs nothing to compute."""

    number: int
    label: str
    forward_s: float
    backward_s: float
    parameter_bytes: int
    is_input: bool = False

    @property
    def name(self) -> str:
        """The number and, where there is one, the label.

        >>> Node(number=4, label="Conv2d", forward_s=0, backward_s=0, parameter_bytes=0).name
        'node4 Conv2d'
        """
        return f"node{self.number} {self.label}".rstrip()


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """What one node makes and others use."""

    source: int
    size_bytes: int
    users: tuple[int, ...]


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The units, each as its nodes in order, and the tensors between the nodes."""

    units: tuple[tuple[Node, ...], ...]
    tensors: tuple[Tensor, ...]

    def cut_bytes(self) -> list[int]:
        """For each unit the bytes alive across the cut after it; nothing is alive after the last."""
        place = self._places()
        changes = [0] * (len(self.units) + 1)
        for tensor in self.tensors:
            begin = place.get(tensor.source, 0)  # an input of the model is there from the start
            end = max((place[user] for user in tensor.users), default=begin)
            if end > begin:
                changes[begin] += tensor.size_bytes
                changes[end] -= tensor.size_bytes
        return list(accumulate(changes[:-1]))

    def used_bytes(self) -> list[int]:
        """For each unit the bytes of the tensors that its nodes take in, each tensor once."""
        place = self._places()
        used = [0] * len(self.units)
        for tensor in self.tensors:
            for unit in {place[user] for user in tensor.users}:
                used[unit] += tensor.size_bytes
        return used

    def _places(self) -> dict[int, int]:
        return {node.number: place for place, unit in enumerate(self.units) for node in unit}


def linearise(
    nodes: Sequence[Node], tensors: Sequence[Tensor], *, where: str, where_edge: Callable[[int, int], str]
) -> Chain:
    """The chain of units of a graph; inputs of the model are not in it, only the tensors that they give."""
    real = {node.number: node for node in nodes if not node.is_input}
    if not real:
        what = "every node is an input of the model" if nodes else "there are no nodes"
        raise InputError(what, where=where, hint="A profile needs at least one node that computes something.")
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
    """The profile of a chain, its backward divided into input and weight gradient."""
    if not 1 <= micro_batch_size <= MAX_MICRO_BATCH_SIZE:
        raise InputError(f"a micro-batch must have 1 to {MAX_MICRO_BATCH_SIZE:,} rows, not {micro_batch_size:,}")
    made = {node.number for unit in chain.units for node in unit}
    given = sum(tensor.size_bytes for tensor in chain.tensors if tensor.source not in made)
    units = []
    for nodes, cut, saved in zip(chain.units, chain.cut_bytes(), saved_bytes, strict=True):
        place = f"{where}, unit {nodes[0].name!r}"
        parameters = checked_bytes(sum(node.parameter_bytes for node in nodes), "the parameters together", place)
        forward = checked_seconds(math.fsum(node.forward_s for node in nodes), "the forward together", place)
        backward = checked_seconds(math.fsum(node.backward_s for node in nodes), "the backward together", place)
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
            cut_bytes=checked_bytes(cut, "what crosses the cut", place),
            saved_bytes=checked_bytes(saved, "what is saved", place),
        )
        units.append(Unit(name=nodes[0].name, parameter_bytes=parameters, sizes=(sizes,), times=(times,)))
    return Profile(
        name=name,
        micro_batch_size=micro_batch_size,
        units=tuple(units),
        input_bytes=checked_bytes(given, "the model's input", where),
        assumptions=tuple(assumptions),
    )


def checked_seconds(value: float, what: str, where: str) -> float:
    """The value, if it is a time that a profile can hold."""
    if not 0 <= value <= MAX_SECONDS:
        raise InputError(_unfit(value, what, f"{MAX_SECONDS:,.0f} seconds"), where=where)
    return value


def checked_bytes(value: float, what: str, where: str) -> int:
    """The value as whole bytes, if it is a size that a profile can hold."""
    if not 0 <= value <= MAX_BYTES:
        raise InputError(_unfit(value, what, "2**60 bytes"), where=where)
    return round(value)


def _unfit(value: float, what: str, most: str) -> str:
    # An int of any length is a number too, and must not be turned into a float.
    if isinstance(value, float) and not math.isfinite(value):
        return f"{what} must be finite, not {value}"
    return f"{what} must not be negative" if value < 0 else f"{what} is over {most}"


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
        _refuse_cycle({user: source for source, user in sorted(edges) if source in stuck}, min(stuck), where_edge)
    return order


def _refuse_cycle(predecessor: dict[int, int], start: int, where_edge: Callable[[int, int], str]) -> None:
    """Every stuck node waits for a stuck node, so going backwards from any must come round to a cycle."""
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
        f"these nodes wait for each other: {' -> '.join([*shown, shown[0]])}",
        where=where_edge(cycle[-1], cycle[0]),
        hint="Take out one of these edges: a model's graph has no cycle.",
    )
