"""Rounds of pairs that are measured at the same time: a round-robin tournament, with each rank in one pair per round.

All pairs of N devices need N - 1 rounds (N if N is odd) if pairs do not disturb each other. A shared interface must
carry one measured link at a time: a host with k devices is then in one pair per round, and k times as many rounds are
needed. This is optimal, since each of its links needs a round.
"""

from collections.abc import Iterable, Mapping, Sequence

from penstock.probe.types import Pair

Round = tuple[Pair, ...]


def tournament(players: Sequence[int]) -> list[Round]:
    """Return rounds in which every pair of ranks occurs once, by the circle method.

    >>> tournament([0, 1, 2, 3])
    [((0, 3), (1, 2)), ((0, 2), (1, 3)), ((0, 1), (2, 3))]
    """
    rank_infos: list[int | None] = [*players]
    if len(rank_infos) % 2:
        rank_infos.append(None)
    rounds = []
    for _ in range(len(rank_infos) - 1):
        opposite = zip(rank_infos[: len(rank_infos) // 2], reversed(rank_infos[len(rank_infos) // 2 :]), strict=True)
        rounds.append(tuple(sorted((min(a, b), max(a, b)) for a, b in opposite if a is not None and b is not None)))
        # The first seat stays, the others rotate.
        rank_infos = [rank_infos[0], rank_infos[-1], *rank_infos[1:-1]]
    return rounds


def plan_rounds(pairs: Iterable[Pair], host_of: Sequence[str], one_at_a_time: Iterable[str]) -> list[Round]:
    """Distribute pairs over rounds. A host that is `one_at_a_time` is in one pair per round.

    >>> plan_rounds([(0, 2), (0, 3), (1, 2), (1, 3)], "aabb", "")
    [((0, 3), (1, 2)), ((0, 2), (1, 3))]
    >>> len(plan_rounds([(0, 2), (0, 3), (1, 2), (1, 3)], "aabb", "a"))
    4
    """
    needed, alone = set(pairs), set(one_at_a_time)
    ranks = sorted({rank for pair in needed for rank in pair})
    by_device = [pair for pairing in tournament(ranks) for pair in pairing if pair in needed]
    return min((_first_fit(order, host_of, alone) for order in (by_device, _by_host(by_device, host_of))), key=len)


def _by_host(pairs: Sequence[Pair], host_of: Sequence[str]) -> list[Pair]:
    """Order the pairs by a tournament of hosts: one pair of each two hosts before the second of any."""
    names = list(dict.fromkeys(host_of))
    waiting: dict[Pair, list[Pair]] = {}
    for one, other in pairs:
        hosts = sorted((names.index(host_of[one]), names.index(host_of[other])))
        waiting.setdefault((hosts[0], hosts[1]), []).append((one, other))
    order = [(host, host) for host in range(len(names))]
    order += [game for pairing in tournament(range(len(names))) for game in pairing]
    ordered = []
    while any(waiting.values()):
        ordered += [waiting[game].pop(0) for game in order if waiting.get(game)]
    return ordered


def _first_fit(pairs: Iterable[Pair], host_of: Sequence[str], alone: set[str]) -> list[Round]:
    """Put each pair into the first round in which its ranks and exclusive hosts are free."""
    rounds: list[list[Pair]] = []
    taken: list[set[int | str]] = []
    for one, other in pairs:
        needs: set[int | str] = {one, other, *({host_of[one], host_of[other]} & alone)}
        index = next((index for index, used in enumerate(taken) if not used & needs), len(rounds))
        if index == len(rounds):
            rounds.append([])
            taken.append(set())
        rounds[index].append((one, other))
        taken[index] |= needs
    return [tuple(sorted(pairing)) for pairing in rounds]


def partners(pairing: Round) -> Mapping[int, int]:
    """Return the peer of each rank in a round."""
    return {rank: peer for one, other in pairing for rank, peer in ((one, other), (other, one))}
