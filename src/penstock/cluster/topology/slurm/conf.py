"""Reader of Slurm's topology.conf: switches or blocks, and the nodes below them. It does not describe devices."""

import re
from collections.abc import Sequence

from penstock.cluster.from_wires import cluster_from_wires
from penstock.cluster.topology.link_types import switch_class
from penstock.cluster.topology.options import (
    UNKNOWN_KIND,
    ImportOptions,
    check_size,
    class_notes,
    kind_notes,
    make_device,
)
from penstock.cluster.topology.slurm.hostlist import expand
from penstock.cluster.topology.slurm.switches import Switch, common_level, paths_to_root, select_nodes
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError

_WORD = re.compile(r"(?<![A-Za-z])([A-Za-z]+)\s*=\s*(\S+)")
_KEYS = {"switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes"}
_START = re.compile(r"^[ \t]*(?:SwitchName|BlockName)[ \t]*=", re.IGNORECASE | re.MULTILINE)
_HINT = "Write SwitchName=s0 Nodes=node[01-16], SwitchName=top Switches=s[0-3] or BlockName=b0 Nodes=node[01-18]."
_FEW_NODES = "Select some with --nodes 'node[01-08]'."


def looks_like_slurm(text: str) -> bool:
    """Return whether a line starts like those of topology.conf."""
    return _START.search(text) is not None


def parse_slurm(text: str, *, name: str, where: str, options: ImportOptions) -> Cluster:
    r"""Parse a topology.conf.

    >>> text = "SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n3\nSwitchName=top Switches=s[0-1]\n"
    >>> cluster = parse_slurm(text, name="three", where="topology.conf", options=ImportOptions(kind="A100-40"))
    >>> [device.name for device in cluster.devices]
    ['n1.d0', 'n2.d0', 'n3.d0']
    """
    switches, notes = [], []
    for number, line in enumerate(text.splitlines(), 1):
        at = f"{where}:{number}"
        words = _words(line.partition("#")[0], at)
        if not words or set(words) == {"blocksizes"}:
            continue
        named = words.get("switchname", words.get("blockname"))
        if named is None:
            raise InputError("the line names neither a switch nor a block", where=at, hint=_HINT)
        if "linkspeed" in words:
            notes.append("LinkSpeed has no unit and is ignored: specify the speed of switches with --link SW1=...")
        nodes, below = words.get("nodes"), words.get("switches")
        for each in expand(named, where=at):
            switches.append(
                Switch(
                    name=each,
                    where=at,
                    nodes=tuple(expand(nodes, where=at)) if nodes else (),
                    switches=tuple(expand(below, where=at)) if below else (),
                    is_block="blockname" in words,
                )
            )
    return from_switches(switches, name=name, where=where, options=options, notes=notes)


def from_switches(
    switches: Sequence[Switch], *, name: str, where: str, options: ImportOptions, notes: Sequence[str] = ()
) -> Cluster:
    """Build the cluster of all nodes below these switches."""
    options.refuse("Slurm's topology", "num_hosts", "between")
    paths = paths_to_root(switches)
    if options.nodes is not None:
        paths = select_nodes(paths, list(dict.fromkeys(expand(options.nodes, where="--nodes"))), "--nodes")
    if not paths:
        raise InputError("the topology has no nodes", where=where, hint=_HINT)
    per_host = options.devices_per_host or 1
    check_size(len(paths) * per_host, where, _FEW_NODES)
    kind = options.kind or UNKNOWN_KIND
    devices = [make_device(f"{node}.d{number}", node, kind) for node in paths for number in range(per_host)]
    blocks = {switch.name for switch in switches if switch.is_block}
    class_of_pair: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
    wires: dict[tuple[int, int], Wire] = {}
    classes: dict[str, Wire] = {}
    for source, one in enumerate(devices):
        for target, other in enumerate(devices):
            if source == target:
                continue
            pair = paths[one.host], paths[other.host]
            if pair not in class_of_pair:
                class_of_pair[pair] = _class(*pair, blocks, where)
            link_class = "SYS" if one.host == other.host else class_of_pair[pair]
            wires[source, target] = classes[link_class] = options.links.wire(link_class)
    every = [
        *class_notes(classes, options.links),
        *kind_notes({kind}, is_specified=options.kind is not None),
        *dict.fromkeys(notes),
    ]
    if options.devices_per_host is None:
        every.append(
            "Slurm's topology does not describe devices: assumed one on each node; change it with --devices-per-host."
        )
    if per_host > 1:
        every.append(
            "Devices of one node are assumed to be connected as SYS (--link SYS=...), and not to share a network "
            "interface."
        )
    return cluster_from_wires(name, devices, wires, assumptions=every)


def _class(one: tuple[str, ...], other: tuple[str, ...], blocks: set[str], where: str) -> str:
    level = common_level(one, other)
    if level is None:
        if one[0] in blocks and other[0] in blocks:
            return switch_class(2)
        what = f"{one[-1]!r} and {other[-1]!r} are not connected"
        raise InputError(what, where=where, hint="Add a switch above both, or select nodes with --nodes.")
    return "BLOCK" if one[0] == other[0] and one[0] in blocks else switch_class(level)


def _words(line: str, where: str) -> dict[str, str]:
    """Return the keys, in lower case, and their values."""
    words: dict[str, str] = {}
    for key, value in _WORD.findall(line):
        if key.lower() not in _KEYS:
            raise InputError(f"unknown key {key[:40]!r}", where=where, hint=_HINT)
        if key.lower() in words:
            raise InputError(f"duplicate key {key!r}", where=where, hint=_HINT)
        words[key.lower()] = value
    if _WORD.sub("", line).strip():
        raise InputError(f"{_WORD.sub('', line).strip()[:40]!r} is not KEY=VALUE", where=where, hint=_HINT)
    return words
