"""Switches with nodes and other switches below them: how many levels up two nodes meet."""

from collections.abc import Sequence

import msgspec

from penstock.cluster.names import listed, near_names
from penstock.errors import InputError

MAX_LEVELS = 32


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """One switch, or a block of nodes that are joined more closely than by switches."""

    name: str
    where: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    is_block: bool = False


def ways_up(switches: Sequence[Switch]) -> dict[str, tuple[str, ...]]:
    """For each node the switches above it, the nearest first."""
    by_name: dict[str, Switch] = {}
    for switch in switches:
        if switch.name in by_name:
            raise InputError(f"switch {switch.name!r} is there twice", where=switch.where)
        by_name[switch.name] = switch
    above: dict[str, str] = {}
    for switch in switches:
        for child in switch.switches:
            if child not in by_name:
                what = f"switch {child!r} is not there"
                raise InputError(what, where=switch.where, hint=near_names(child, by_name))
            if child in above:
                what = f"switch {child!r} is below both {above[child]!r} and {switch.name!r}"
                raise InputError(what, where=switch.where, hint="Only trees can be read.")
            above[child] = switch.name
    found: dict[str, tuple[str, ...]] = {}
    for switch in switches:
        way = [switch.name]
        while way[-1] in above:
            way.append(above[way[-1]])
            if len(way) > MAX_LEVELS:
                raise InputError(f"the switches above {switch.name!r} have no end", where=switch.where)
        for node in switch.nodes:
            if node in found:
                what = f"node {node!r} is below both {found[node][0]!r} and {switch.name!r}"
                raise InputError(what, where=switch.where, hint="A node may be below one switch.")
            found[node] = tuple(way)
    return found


def meeting_level(one: tuple[str, ...], other: tuple[str, ...]) -> int | None:
    """How many levels up two nodes meet: 1 on the same switch, None if never.

    >>> meeting_level(("s0", "top"), ("s1", "top"))
    2
    """
    places = {name: level for level, name in enumerate(other, 1)}
    return next((max(level, places[name]) for level, name in enumerate(one, 1) if name in places), None)


def keep_nodes(ways: dict[str, tuple[str, ...]], wanted: Sequence[str], where: str) -> dict[str, tuple[str, ...]]:
    """Only these nodes, in this order."""
    missing = [name for name in wanted if name not in ways]
    if missing:
        what = f"there is no node {listed(missing)}"
        raise InputError(what, where=where, hint=near_names(missing[0], ways))
    return {name: ways[name] for name in wanted}
