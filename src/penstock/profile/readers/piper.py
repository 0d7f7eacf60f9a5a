"""Reader of the JSON of the planner Piper: a graph of layers with several variants each, and edges with bytes."""

import msgspec

from penstock.errors import InputError
from penstock.profile.readers.graph import Node, Tensor, chain_profile, check_bytes, check_seconds, linearise
from penstock.profile.types import UNNAMED_KIND, Profile

_VARIANT = "vanilla"

_ASSUMPTIONS = (
    'Each node uses its variant "vanilla" on one device: no tensor parallelism, no recompute.',
    "The file has one time per node: a third each is assumed for forward, input gradient and weight gradient.",
    "The backward of a layer without parameters is all input gradient.",
    "Saved bytes are memoryUsageA, which Piper counts once for every sample in flight.",
    "memoryUsageB is not used: weights, gradients and optimizer state follow from parameterSize.",
    "Edges of equal size from one node carry the same tensor; edges of different size carry different tensors.",
    "Nodes without time, parameters and incoming edges are the model's input.",
    "The graph is sorted topologically, the lowest ready node first; a node with parameters starts a layer.",
    "The optimizer step is not in the file: assumed 0 s.",
)


def parse_piper(text: str, *, name: str, where: str, kind: str = UNNAMED_KIND) -> Profile:
    """Parse a Piper file.

    Args:
        text: The JSON document.
        name: Name of the profile.
        where: Name of the file, for errors.
        kind: Device kind of the measurement, which the file does not contain.

    Returns:
        The profile, with a micro-batch size of 1.

    Raises:
        InputError: The document is invalid, an edge names a missing node, or the graph has a cycle.
    """
    document = _decode(text, where)
    fed = {edge.dest_id for edge in document.edges}
    nodes: dict[int, Node] = {}
    saved: dict[int, int] = {}
    for index, entry in enumerate(document.nodes):
        at = f"{where}, at $.nodes[{index}]"
        if entry.id in nodes:
            raise InputError(f"duplicate node {entry.id}", where=at)
        variant = _vanilla(entry, at)
        saved[entry.id] = check_bytes(variant.memory_usage_a, "memoryUsageA", at)
        seconds = check_seconds(variant.time_per_sample, "timePerSample", at)
        parameters = check_bytes(variant.parameter_size, "parameterSize", at)
        nodes[entry.id] = Node(
            number=entry.id,
            label=entry.name[:60].strip(),
            forward_s=seconds / 3,
            backward_s=2 * (seconds / 3),
            parameter_bytes=parameters,
            is_input=seconds == 0 and parameters == 0 and entry.id not in fed,
        )
    edge_index: dict[tuple[int, int], int] = {}
    users: dict[tuple[int, int], list[int]] = {}
    for index, edge in enumerate(document.edges):
        at = f"{where}, at $.edges[{index}]"
        for end in (edge.source_id, edge.dest_id):
            if end not in nodes:
                raise InputError(f"the edge names node {end}, which does not exist", where=at)
        size = check_bytes(edge.communication_cost, "communicationCost", at)
        users.setdefault((edge.source_id, size), []).append(edge.dest_id)
        edge_index.setdefault((edge.source_id, edge.dest_id), index)
    tensors = [Tensor(source=source, size_bytes=size, users=tuple(to)) for (source, size), to in users.items()]
    chain = linearise(
        list(nodes.values()), tensors, where=where, where_edge=lambda *edge: f"{where}, at $.edges[{edge_index[edge]}]"
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
    """Variants by the number of devices that share the node; only those on one device are read."""

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
        raise InputError(what, where=at, hint="Check that this is a Piper file.") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputError(f"broken JSON: {error}", where=where, hint="Fix or regenerate the file.") from None


def _vanilla(node: _Node, where: str) -> _Variant:
    for variant in node.variants.one:
        if variant.id == _VARIANT:
            return variant
    raise InputError(f'node {node.id} has no variant "{_VARIANT}" on one device', where=where)
