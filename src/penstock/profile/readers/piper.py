"""Reads the JSON of the planner Piper: a graph of layers with several variants each, and edges with bytes."""

import msgspec

from penstock.errors import InputError
from penstock.profile.readers.graph import Node, Tensor, chain_profile, checked_bytes, checked_seconds, linearise
from penstock.profile.types import Profile

_VARIANT = "vanilla"

_ASSUMPTIONS = (
    'Of each node the variant "vanilla" on one device is taken: no tensor parallelism, no recomputing.',
    "The file has one time for all: a third each is taken for forward, input gradient and weight gradient.",
    "Where a unit has no parameters, all of its backward is input gradient.",
    "Saved bytes are memoryUsageA, what Piper counts once for every sample in flight.",
    "memoryUsageB is not used: weights, gradients and optimizer state are counted from parameterSize.",
    "Edges that leave a node with equal bytes carry the same tensor; with other bytes, another one.",
    "Nodes without time, parameters and edges into them are the model's input.",
    "The graph is put in topological order, the lowest ready node first; a node with parameters starts a unit.",
    "The optimizer's step is not in the file and is taken as 0 s.",
)


def parse_piper(text: str, *, name: str, where: str, kind: str = "profiled") -> Profile:
    """The profile in a Piper file, for micro-batches of one row; `kind` says what it was measured on."""
    document = _decode(text, where)
    fed = {edge.dest_id for edge in document.edges}
    nodes: dict[int, Node] = {}
    saved: dict[int, int] = {}
    for place, entry in enumerate(document.nodes):
        at = f"{where}, at $.nodes[{place}]"
        if entry.id in nodes:
            raise InputError(f"node {entry.id} is there twice", where=at)
        variant = _vanilla(entry, at)
        saved[entry.id] = checked_bytes(variant.memory_usage_a, "memoryUsageA", at)
        seconds = checked_seconds(variant.time_per_sample, "timePerSample", at)
        parameters = checked_bytes(variant.parameter_size, "parameterSize", at)
        nodes[entry.id] = Node(
            number=entry.id,
            label=entry.name[:60].strip(),
            forward_s=seconds / 3,
            backward_s=2 * (seconds / 3),
            parameter_bytes=parameters,
            is_input=seconds == 0 and parameters == 0 and entry.id not in fed,
        )
    places: dict[tuple[int, int], int] = {}
    users: dict[tuple[int, int], list[int]] = {}
    for place, edge in enumerate(document.edges):
        at = f"{where}, at $.edges[{place}]"
        for end in (edge.source_id, edge.dest_id):
            if end not in nodes:
                raise InputError(f"the edge names node {end}, which is not there", where=at)
        size = checked_bytes(edge.communication_cost, "communicationCost", at)
        users.setdefault((edge.source_id, size), []).append(edge.dest_id)
        places.setdefault((edge.source_id, edge.dest_id), place)
    tensors = [Tensor(source=source, size_bytes=size, users=tuple(to)) for (source, size), to in users.items()]
    chain = linearise(
        list(nodes.values()), tensors, where=where, where_edge=lambda *edge: f"{where}, at $.edges[{places[edge]}]"
    )
    saved_bytes = [sum(saved[node.number] for node in unit) for unit in chain.units]
    return chain_profile(
        chain, saved_bytes, name=name, micro_batch_size=1, kind=kind, where=where, assumptions=_ASSUMPTIONS
    )


class _Variant(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    time_per_sample: float
    parameter_size: float
    memory_usage_a: float


class _Degrees(msgspec.Struct, frozen=True):
    """Variants by the number of devices that share the node; only one device is read."""

    one: tuple[_Variant, ...] = msgspec.field(name="1")


class _Node(msgspec.Struct, frozen=True):
    id: int
    variants: _Degrees = msgspec.field(name="TMPCs")
    name: str = ""


class _Edge(msgspec.Struct, frozen=True, rename="camel"):
    source_id: int
    dest_id: int
    communication_cost: float


class _Document(msgspec.Struct, frozen=True):
    nodes: tuple[_Node, ...]
    edges: tuple[_Edge, ...] = ()


def _decode(text: str, where: str) -> _Document:
    try:
        return msgspec.json.decode(text, type=_Document)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        at = f"{where}, at {path.strip('`')}" if path else where
        raise InputError(what, where=at, hint="Is it a Piper file?") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputError(f"broken JSON: {error}", where=where, hint="Mend or remake the file.") from None


def _vanilla(node: _Node, where: str) -> _Variant:
    for variant in node.variants.one:
        if variant.id == _VARIANT:
            return variant
    raise InputError(f'node {node.id} has no variant "{_VARIANT}" on one device', where=where)
