"""Trees of switches with nodes below them, and the level of the lowest common switch of two nodes."""

from collections.abc import Sequence

import msgspec

from penstock.errors import InputError
from penstock.names import list_names, suggest_names

MAX_LEVELS = 32


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A switch, or a block of nodes with a faster connection than by switches."""

    name: str
    where: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    is_block: bool = False


def paths_to_root(switches: Sequence[Switch]) -> dict[str, tuple[str, ...]]:
    """Return the switches above each node, the nearest first."""
    by_name: dict[str, Switch] = {}
    for switch in switches:
        if switch.name in by_name:
            raise InputError(f"duplicate switch {switch.name!r}", where=switch.where)
        by_name[switch.name] = switch
    above: dict[str, str] = {}
    for switch in switches:
        for child in switch.switches:
            if child not in by_name:
                what = f"switch {child!r} does not exist"
                raise InputError(what, where=switch.where, hint=suggest_names(child, by_name))
            if child in above:
                what = f"switch {child!r} is below both {above[child]!r} and {switch.name!r}"
                raise InputError(what, where=switch.where, hint="Only trees are supported.")
            above[child] = switch.name
    paths: dict[str, tuple[str, ...]] = {}
    for switch in switches:
        path = [switch.name]
        while path[-1] in above:
            path.append(above[path[-1]])
            if len(path) > MAX_LEVELS:
                what = f"the switches above {switch.name!r} form a cycle or exceed {MAX_LEVELS} levels"
                raise InputError(what, where=switch.where)
        for node in switch.nodes:
            if node in paths:
                what = f"node {node!r} is below both {paths[node][0]!r} and {switch.name!r}"
                raise InputError(what, where=switch.where, hint="A node must be below one switch.")
            paths[node] = tuple(path)
    return paths


def common_level(one: tuple[str, ...], other: tuple[str, ...]) -> int | None:
    """Return the level of the lowest common switch of two nodes: 1 on the same switch, None if there is none.

    >>> common_level(("s0", "top"), ("s1", "top"))
    2
    """
    levels = {name: level for level, name in enumerate(other, 1)}
    return next((max(level, levels[name]) for level, name in enumerate(one, 1) if name in levels), None)


def select_nodes(paths: dict[str, tuple[str, ...]], names: Sequence[str], where: str) -> dict[str, tuple[str, ...]]:
    """Select nodes by name, in the order of the names."""
    missing = [name for name in names if name not in paths]
    if missing:
        what = f"node {list_names(missing)} does not exist"
        raise InputError(what, where=where, hint=suggest_names(missing[0], paths))
    return {name: paths[name] for name in names}
