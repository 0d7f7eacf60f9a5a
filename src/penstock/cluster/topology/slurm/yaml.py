"""Reader of Slurm's topology.yaml: named topologies of switches or blocks, of which the default one is used."""

import re

from penstock.cluster.topology.options import ImportOptions
from penstock.cluster.topology.slurm.conf import from_switches
from penstock.cluster.topology.slurm.hostlist import expand
from penstock.cluster.topology.slurm.plain_yaml import Node, parse_yaml
from penstock.cluster.topology.slurm.switches import Switch
from penstock.cluster.types import Cluster
from penstock.errors import InputError

_START = re.compile(r"^(?:-[ \t]+|[ \t]+)topology[ \t]*:", re.MULTILINE)
_HINT = "Expected a list of `- topology: name` with `tree:` and its `switches:`, or `block:` and its `blocks:`."
_KNOWN = {"topology", "cluster_default", "tree", "block", "flat"}


def looks_like_slurm_yaml(text: str) -> bool:
    """Return whether the text has a line `- topology:`."""
    return _START.search(text) is not None


def parse_slurm_yaml(text: str, *, name: str, where: str, options: ImportOptions) -> Cluster:
    """Parse a topology.yaml."""
    topologies = [_map(item, where) for item in _list(parse_yaml(text, where=where), where)]
    if not topologies:
        raise InputError("the file has no topology", where=where, hint=_HINT)
    default = [
        item for item in topologies if _text(item.get("cluster_default"), where).lower() in ("true", "yes", "on")
    ]
    chosen = (default or topologies)[0]
    for key, node in chosen.items():
        if key not in _KNOWN:
            raise InputError(f"unknown key {key!r}", where=f"{where}:{node.line}", hint=_HINT)
    notes = []
    if len(topologies) > 1:
        named = _text(chosen.get("topology"), where)
        notes.append(
            f"Of {len(topologies)} topologies, {named!r} is used, the {'default' if default else 'first'} one."
        )
    if "tree" in chosen:
        switches = _switches(chosen["tree"], "switches", "switch", where)
    elif "block" in chosen:
        switches = _switches(chosen["block"], "blocks", "block", where)
    else:
        raise InputError("the topology is neither a tree nor blocks", where=where, hint=_HINT)
    return from_switches(switches, name=name, where=where, options=options, notes=notes)


def _switches(node: Node, plural: str, singular: str, where: str) -> list[Switch]:
    values = _map(node, where)
    if plural not in values:
        raise InputError(f"{plural} is missing", where=f"{where}:{node.line}", hint=_HINT)
    switches = []
    for item in _list(values[plural], where):
        entry, at = _map(item, where), f"{where}:{item.line}"
        for key in entry:
            if key not in (singular, "nodes", "children", "link_speed"):
                raise InputError(f"unknown key {key!r}", where=at, hint=_HINT)
        named, nodes, below = (_text(entry.get(key), where) for key in (singular, "nodes", "children"))
        if not named:
            raise InputError(f"a {singular} has no name", where=at, hint=_HINT)
        switches.append(
            Switch(
                name=named,
                where=at,
                nodes=tuple(expand(nodes, where=at)) if nodes else (),
                switches=tuple(expand(below, where=at)) if below else (),
                is_block=singular == "block",
            )
        )
    return switches


def _map(node: Node, where: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise InputError("expected a map", where=f"{where}:{node.line}", hint=_HINT)
    return node.value


def _list(node: Node, where: str) -> list[Node]:
    if not isinstance(node.value, list):
        raise InputError("expected a list with a dash before each item", where=f"{where}:{node.line}", hint=_HINT)
    return node.value


def _text(node: Node | None, where: str) -> str:
    """Return a string; a list of strings is joined with commas."""
    if node is None:
        return ""
    if isinstance(node.value, list):
        return ",".join(_text(item, where) for item in node.value)
    if isinstance(node.value, dict):
        raise InputError("expected a string", where=f"{where}:{node.line}", hint=_HINT)
    return node.value
