"""Slurm's topology.yaml: named topologies of switches or blocks; the default one is read."""

import re

from penstock.cluster.topology.options import Wanted
from penstock.cluster.topology.slurm.conf import from_switches
from penstock.cluster.topology.slurm.hostlist import expand
from penstock.cluster.topology.slurm.plain_yaml import Node, parse_yaml
from penstock.cluster.topology.slurm.switches import Switch
from penstock.cluster.types import Cluster
from penstock.errors import InputError

_START = re.compile(r"^(?:-\s+|\s+)topology\s*:", re.MULTILINE)
_HINT = "It is a list of `- topology: name` with `tree:` and its `switches:`, or `block:` and its `blocks:`."
_KNOWN = {"topology", "cluster_default", "tree", "block", "flat"}


def looks_like_slurm_yaml(text: str) -> bool:
    """Whether there is a line `- topology:`."""
    return _START.search(text) is not None


def parse_slurm_yaml(text: str, *, name: str, where: str, wanted: Wanted) -> Cluster:
    """The cluster of a topology.yaml."""
    topologies = [_map(item, where) for item in _list(parse_yaml(text, where=where), where)]
    if not topologies:
        raise InputError("there is no topology in it", where=where, hint=_HINT)
    default = [
        item for item in topologies if _text(item.get("cluster_default"), where).lower() in ("true", "yes", "on")
    ]
    chosen = (default or topologies)[0]
    for key, node in chosen.items():
        if key not in _KNOWN:
            raise InputError(f"the key {key!r} is not known here", where=f"{where}:{node.line}", hint=_HINT)
    notes = []
    if len(topologies) > 1:
        named = _text(chosen.get("topology"), where)
        notes.append(
            f"Of {len(topologies)} topologies, {named!r} is read, which is {'the default' if default else 'first'}."
        )
    if "tree" in chosen:
        switches = _members(chosen["tree"], "switches", "switch", where)
    elif "block" in chosen:
        switches = _members(chosen["block"], "blocks", "block", where)
    else:
        raise InputError("the topology is neither a tree nor made of blocks", where=where, hint=_HINT)
    return from_switches(switches, name=name, where=where, wanted=wanted, notes=notes)


def _members(node: Node, plural: str, singular: str, where: str) -> list[Switch]:
    values = _map(node, where)
    if plural not in values:
        raise InputError(f"{plural} is missing", where=f"{where}:{node.line}", hint=_HINT)
    found = []
    for item in _list(values[plural], where):
        member, place = _map(item, where), f"{where}:{item.line}"
        for key in member:
            if key not in (singular, "nodes", "children", "link_speed"):
                raise InputError(f"the key {key!r} is not known here", where=place, hint=_HINT)
        named, nodes, below = (_text(member.get(key), where) for key in (singular, "nodes", "children"))
        if not named:
            raise InputError(f"a {singular} has no name", where=place, hint=_HINT)
        found.append(
            Switch(
                name=named,
                where=place,
                nodes=tuple(expand(nodes, where=place)) if nodes else (),
                switches=tuple(expand(below, where=place)) if below else (),
                is_block=singular == "block",
            )
        )
    return found


def _map(node: Node, where: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise InputError("a map of keys should stand here", where=f"{where}:{node.line}", hint=_HINT)
    return node.value


def _list(node: Node, where: str) -> list[Node]:
    if not isinstance(node.value, list):
        raise InputError("a list should stand here, each item with a dash", where=f"{where}:{node.line}", hint=_HINT)
    return node.value


def _text(node: Node | None, where: str) -> str:
    """A text; a list of them is one with commas."""
    if node is None:
        return ""
    if isinstance(node.value, list):
        return ",".join(_text(item, where) for item in node.value)
    if isinstance(node.value, dict):
        raise InputError("a text should stand here", where=f"{where}:{node.line}", hint=_HINT)
    return node.value
