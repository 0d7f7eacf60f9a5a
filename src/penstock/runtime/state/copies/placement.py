"""Which rank copies which part of the state, and which rank of another host keeps a second copy of it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

SINGLE, REPLICATED = "single", "replicated"


class CopyPlan(NamedTuple):
    """The parts of the state that ranks copy. The key of a part tells its rank and whether it is replicated."""

    single: tuple[tuple[str, ...], ...]
    """By rank: names of entries of which no other host has the values. They are sent to the rank's keeper."""
    replicated: tuple[tuple[str, ...], ...]
    """By rank: names of entries that a rank of another host copies as well."""
    keepers: tuple[int | None, ...]
    """By rank: the rank of another host that keeps a second copy of its single part; None if there is one host."""
    needs: tuple[tuple[str, ...], ...]
    """Keys of parts: of each tuple at least one part is needed to restore the state."""

    def senders_to(self, rank: int) -> list[int]:
        """The ranks whose single parts this rank keeps."""
        return [sender for sender, keeper in enumerate(self.keepers) if keeper == rank]


def part_key(rank: int, kind: str) -> str:
    """The key of the part of a kind, `SINGLE` or `REPLICATED`, that a rank writes.

    >>> part_key(2, SINGLE)
    '2.single'
    """
    return f"{rank}.{kind}"


def place_copies(holders: Mapping[str, Sequence[int]], num_bytes: Mapping[str, int], hosts: Sequence[str]) -> CopyPlan:
    """Decide which rank copies which entries, so that the bytes are balanced.

    An entry whose values two hosts have, because its stage is replicated, is copied on both and not sent.

    Args:
        holders: By name of an entry: the ranks that have its latest values.
        num_bytes: By name: the bytes of the entry, with its optimizer state.
        hosts: By rank: its host.

    Example:
        >>> plan = place_copies({"a": [0], "b": [1, 2]}, {"a": 4, "b": 4}, ["x", "x", "y"])
        >>> plan.single, plan.replicated, plan.keepers
        ((('a',), (), ()), ((), ('b',), ('b',)), (2, 2, 0))
    """
    num_ranks = len(hosts)
    load = [0] * num_ranks
    single: list[list[str]] = [[] for _ in hosts]
    replicated: list[list[str]] = [[] for _ in hosts]
    pairs: dict[tuple[str, ...], None] = {}
    for name, ranks in holders.items():
        by_host: dict[str, int] = {}
        for rank in sorted(ranks, key=lambda rank: (load[rank], rank)):
            by_host.setdefault(hosts[rank], rank)
        chosen = sorted(by_host.values(), key=lambda rank: (load[rank], rank))[:2]
        parts = single if len(chosen) == 1 else replicated
        for rank in chosen:
            parts[rank].append(name)
            load[rank] += num_bytes[name]
        if len(chosen) == 2:
            pairs[tuple(part_key(rank, REPLICATED) for rank in sorted(chosen))] = None
    needs = [(part_key(rank, SINGLE),) for rank in range(num_ranks)]
    return CopyPlan(tuple(map(tuple, single)), tuple(map(tuple, replicated)), _keepers(hosts), (*needs, *pairs))


def _keepers(hosts: Sequence[str]) -> tuple[int | None, ...]:
    """The keeper of each rank: on the next host, where ranks take turns."""
    names = list(dict.fromkeys(hosts))
    if len(names) == 1:
        return (None,) * len(hosts)
    ranks_of = {name: [rank for rank, host in enumerate(hosts) if host == name] for name in names}
    keepers: list[int | None] = []
    for rank, host in enumerate(hosts):
        following = ranks_of[names[(names.index(host) + 1) % len(names)]]
        keepers.append(following[ranks_of[host].index(rank) % len(following)])
    return tuple(keepers)
