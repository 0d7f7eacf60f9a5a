"""Slurm's topology.conf: switches or blocks, and the nodes below them. Of devices it says nothing."""

import re
from collections.abc import Sequence

from penstock.cluster.from_wires import assemble
from penstock.cluster.topology.link_types import switch_class
from penstock.cluster.topology.options import UNKNOWN_KIND, Wanted, check_size, class_notes, kind_notes, make_device
from penstock.cluster.topology.slurm.hostlist import expand
from penstock.cluster.topology.slurm.switches import Switch, keep_nodes, meeting_level, ways_up
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError

_WORD = re.compile(r"([A-Za-z]+)\s*=\s*(\S+)")
_KEYS = {"switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes"}
_START = re.compile(r"^\s*(?:SwitchName|BlockName)\s*=", re.IGNORECASE | re.MULTILINE)
_HINT = "A line is SwitchName=s0 Nodes=node[01-16], SwitchName=top Switches=s[0-3] or BlockName=b0 Nodes=node[01-18]."
_FEW_NODES = "Choose some with --nodes 'node[01-08]'."


def looks_like_slurm(text: str) -> bool:
    """Whether a line begins as those of topology.conf do."""
    return _START.search(text) is not None


def parse_slurm(text: str, *, name: str, where: str, wanted: Wanted) -> Cluster:
    r"""The cluster of a topology.conf.

    >>> text = "SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n3\nSwitchName=top Switches=s[0-1]\n"
    >>> cluster = parse_slurm(text, name="three", where="topology.conf", wanted=Wanted(kind="A100-40"))
    >>> [device.name for device in cluster.devices]
    ['n1.d0', 'n2.d0', 'n3.d0']
    """
    switches, notes = [], []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{where}:{number}"
        words = _words(line.partition("#")[0], place)
        if not words or set(words) == {"blocksizes"}:
            continue
        named = words.get("switchname", words.get("blockname"))
        if named is None:
            raise InputError("the line names no switch and no block", where=place, hint=_HINT)
        if "linkspeed" in words:
            notes.append("LinkSpeed has no unit and is passed over: --link SW1=... says how fast switches are.")
        nodes, below = words.get("nodes"), words.get("switches")
        for each in expand(named, where=place):
            switches.append(
                Switch(
                    name=each,
                    where=place,
                    nodes=tuple(expand(nodes, where=place)) if nodes else (),
                    switches=tuple(expand(below, where=place)) if below else (),
                    is_block="blockname" in words,
                )
            )
    return from_switches(switches, name=name, where=where, wanted=wanted, notes=notes)


def from_switches(
    switches: Sequence[Switch], *, name: str, where: str, wanted: Wanted, notes: Sequence[str] = ()
) -> Cluster:
    """The cluster of all nodes below these switches."""
    wanted.refuse("Slurm's topology", "num_hosts", "between")
    ways = ways_up(switches)
    if wanted.nodes is not None:
        ways = keep_nodes(ways, list(dict.fromkeys(expand(wanted.nodes, where="--nodes"))), "--nodes")
    if not ways:
        raise InputError("there is no node in it", where=where, hint=_HINT)
    per_host = wanted.devices_per_host or 1
    check_size(len(ways) * per_host, where, _FEW_NODES)
    kind = wanted.kind or UNKNOWN_KIND
    devices = [make_device(f"{node}.d{place}", node, kind) for node in ways for place in range(per_host)]
    blocks = {switch.name for switch in switches if switch.is_block}
    steps: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
    wires: dict[tuple[int, int], Wire] = {}
    classes: dict[str, Wire] = {}
    for source, one in enumerate(devices):
        for target, other in enumerate(devices):
            if source == target:
                continue
            pair = ways[one.host], ways[other.host]
            if pair not in steps:
                steps[pair] = _class(*pair, blocks, where)
            found = "SYS" if one.host == other.host else steps[pair]
            wires[source, target] = classes[found] = wanted.links.wire(found)
    every = [
        *class_notes(classes, wanted.links),
        *kind_notes({kind}, said=wanted.kind is not None),
        *dict.fromkeys(notes),
    ]
    if wanted.devices_per_host is None:
        every.append(
            "Slurm's topology says nothing of devices: one on each node is taken; --devices-per-host says more."
        )
    if per_host > 1:
        every.append("Devices of one node are taken to be joined as SYS (--link SYS=...), and to have a network each.")
    return assemble(name, devices, wires, assumptions=every)


def _class(one: tuple[str, ...], other: tuple[str, ...], blocks: set[str], where: str) -> str:
    level = meeting_level(one, other)
    if level is None:
        if one[0] in blocks and other[0] in blocks:
            return switch_class(2)
        what = f"nothing joins {one[-1]!r} and {other[-1]!r}"
        raise InputError(what, where=where, hint="Add a switch above both, or choose nodes with --nodes.")
    return "BLOCK" if one[0] == other[0] and one[0] in blocks else switch_class(level)


def _words(line: str, place: str) -> dict[str, str]:
    """The keys, in small letters, and their values."""
    words: dict[str, str] = {}
    for key, value in _WORD.findall(line):
        if key.lower() not in _KEYS:
            raise InputError(f"the key {key[:40]!r} is not known here", where=place, hint=_HINT)
        if key.lower() in words:
            raise InputError(f"the key {key!r} is there twice", where=place, hint=_HINT)
        words[key.lower()] = value
    if _WORD.sub("", line).strip():
        raise InputError(f"{_WORD.sub('', line).strip()[:40]!r} is no key and value", where=place, hint=_HINT)
    return words
