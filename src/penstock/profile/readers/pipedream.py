"""Reader of PipeDream's profiler output, a graph format that other planners use as well.

    node4 -- Conv2d(64, 64, kernel_size=3) -- forward_compute_time=1.5, backward_compute_time=3, activation_size=[8; 4], parameter_size=16
            node4 -- node5

The nodes come first, one per line, in milliseconds and bytes; then the edges. A size in brackets lists several outputs.
"""  # noqa: E501

import re
from collections.abc import Mapping

from penstock.errors import InputError
from penstock.profile.readers.graph import Node, Tensor, chain_profile, check_bytes, check_seconds, linearise
from penstock.profile.types import UNNAMED_KIND, Profile

_NODE_START = re.compile(r"node([0-9]{1,18}) -- ")
_EDGE = re.compile(r"node([0-9]{1,18}) -- node([0-9]{1,18})")
_STAGE = re.compile(r" -- stage_id=[0-9]+\Z")
_NUMBERS_START = " -- forward_compute_time="
_KEYS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")

_ASSUMPTIONS = (
    "Nodes named Input are the model's input: their time is data loading and is ignored.",
    "The graph is sorted topologically, the lowest ready node first; a node with parameters starts a layer.",
    "The file has one backward time: half is assumed to be input gradient, half weight gradient.",
    "The backward of a layer without parameters is all input gradient.",
    "Saved bytes are the inputs of a layer's nodes, each tensor once; the file has no other saved tensors.",
    "The optimizer step is not in the file: assumed 0 s.",
)


def parse_pipedream(
    text: str, *, name: str, where: str, micro_batch_size: int = 1, kind: str = UNNAMED_KIND
) -> Profile:
    """Parse a PipeDream graph.

    A node is an input of the model if its description starts with "Input" and it has neither parameters nor incoming
    edges.

    Args:
        text: The graph.
        name: Name of the profile.
        where: Name of the file, for errors.
        micro_batch_size: Micro-batch size of the measurement, which the text does not contain.
        kind: Device kind of the measurement, which the text does not contain.

    Raises:
        InputError: A line is invalid, an edge names a missing node, or the graph has a cycle.

    >>> costs = "forward_compute_time=1, backward_compute_time=2, activation_size=8, parameter_size=4"
    >>> profile = parse_pipedream(f"node1 -- Linear(2, 2) -- {costs}", name="tiny", where="tiny.txt")
    >>> profile.units[0].name, profile.units[0].times[0].forward_s
    ('node1 Linear', 0.001)
    """
    lines: dict[int, _Line] = {}
    edges: dict[tuple[int, int], int] = {}
    for row, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line:
            continue
        if edge := _EDGE.fullmatch(line):
            edges.setdefault((int(edge[1]), int(edge[2])), row)
            continue
        parsed = _parse_node(line, f"{where}:{row}")
        if parsed.number in lines:
            raise InputError(f"duplicate node{parsed.number}", where=f"{where}:{row}")
        lines[parsed.number] = parsed
    _check_ends(edges, lines, where)

    fed = {user for _, user in edges}
    nodes = [line.node(is_fed=line.number in fed) for line in lines.values()]
    users: dict[int, list[int]] = {}
    for source, user in edges:
        users.setdefault(source, []).append(user)
    tensors = [
        Tensor(source=line.number, size_bytes=line.activation_bytes, users=tuple(users.get(line.number, ())))
        for line in lines.values()
    ]
    chain = linearise(nodes, tensors, where=where, where_edge=lambda *edge: f"{where}:{edges[edge]}")
    return chain_profile(
        chain,
        chain.used_bytes(),
        name=name,
        micro_batch_size=micro_batch_size,
        kind=kind,
        where=where,
        assumptions=_ASSUMPTIONS,
    )


class _Line:
    """One parsed line of a node."""

    def __init__(self, number: int, description: str, values: Mapping[str, str], where: str) -> None:
        self.number = number
        self.description = description
        self.forward_s = _seconds(values, "forward_compute_time", where)
        self.backward_s = _seconds(values, "backward_compute_time", where)
        self.activation_bytes = _sum_of_sizes(values["activation_size"], where)
        size = _number(values["parameter_size"], "parameter_size", where)
        self.parameter_bytes = check_bytes(size, "parameter_size", where)

    def node(self, *, is_fed: bool) -> Node:
        words = self.description.partition("(")[0].split()
        return Node(
            number=self.number,
            label=words[0][:60] if words else "",
            forward_s=self.forward_s,
            backward_s=self.backward_s,
            parameter_bytes=self.parameter_bytes,
            is_input=self.description.startswith("Input") and not is_fed and not self.parameter_bytes,
        )


def _parse_node(line: str, where: str) -> _Line:
    """Parse the line of a node. A description may contain " -- ", so the numbers are searched from the end."""
    start = _NODE_START.match(line)
    numbers_at = line.rfind(_NUMBERS_START)
    if start is None or numbers_at < start.end() - len(" -- "):
        raise _unreadable(line, where)
    numbers = _STAGE.sub("", line[numbers_at + len(" -- ") :])  # PipeDream's plans append the stage
    values: dict[str, str] = {}
    for part in numbers.split(","):
        key, _, value = part.partition("=")
        if key.strip() not in _KEYS or key.strip() in values:
            raise _unreadable(line, where)
        values[key.strip()] = value.strip()
    if len(values) < len(_KEYS):
        raise _unreadable(line, where)
    return _Line(int(start[1]), line[start.end() : numbers_at].strip(), values, where)


def _unreadable(line: str, where: str) -> InputError:
    keys = ", ".join(f"{key}=.." for key in _KEYS)
    return InputError(
        f"neither a node nor an edge: {line[:60]!r}",
        where=where,
        hint=f"A node is written 'node1 -- description -- {keys}', an edge 'node1 -- node2'.",
    )


def _check_ends(edges: Mapping[tuple[int, int], int], lines: Mapping[int, _Line], where: str) -> None:
    for edge, row in edges.items():
        for end in edge:
            if end not in lines:
                raise InputError(f"the edge names node{end}, which does not exist", where=f"{where}:{row}")


def _seconds(values: Mapping[str, str], key: str, where: str) -> float:
    return check_seconds(_number(values[key], key, where) / 1e3, key, where)


def _sum_of_sizes(text: str, where: str) -> int:
    parts = text[1:-1].split(";") if text.startswith("[") and text.endswith("]") else [text]
    sizes = [check_bytes(_number(part.strip(), "activation_size", where), "activation_size", where) for part in parts]
    return check_bytes(sum(sizes), "activation_size", where)


def _number(text: str, what: str, where: str) -> float:
    try:
        if "_" not in text and len(text) <= 100:
            return float(text)
    except ValueError:
        pass
    raise InputError(f"{what} is {text[:60]!r}, which is not a number", where=where)
