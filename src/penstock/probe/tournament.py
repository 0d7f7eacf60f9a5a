"""Which pairs are measured at the same time: as a tournament, in which nobody is in two games at once.

All pairs of N devices need N - 1 rounds (N if N is odd) when pairs do not disturb each other. A shared interface can
carry only one of its links at a time, or their rates would be mixed up: a host with k devices then takes part in one
pair of hosts a round, and k times as many rounds are needed. Fewer cannot be, as each of its links needs one.
"""

from collections.abc import Iterable, Mapping, Sequence

from penstock.probe.types import Pair

Round = tuple[Pair, ...]


def tournament(players: Sequence[int]) -> list[Round]:
    """Rounds in which everybody meets everybody once, by the circle method.

    >>> tournament([0, 1, 2, 3])
    [((0, 3), (1, 2)), ((0, 2), (1, 3)), ((0, 1), (2, 3))]
    """
    seats: list[int | None] = [*players]
    if len(seats) % 2:
        seats.append(None)
    rounds = []
    for _ in range(len(seats) - 1):
        met = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        rounds.append(tuple(sorted((min(a, b), max(a, b)) for a, b in met if a is not None and b is not None)))
        # The first stays, the others move on by one seat.
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def plan_rounds(pairs: Iterable[Pair], host_of: Sequence[str], one_at_a_time: Iterable[str]) -> list[Round]:
    """Rounds for these pairs. A host that is `one_at_a_time` takes part in one pair a round.

    >>> plan_rounds([(0, 2), (0, 3), (1, 2), (1, 3)], "aabb", "")
    [((0, 3), (1, 2)), ((0, 2), (1, 3))]
    >>> len(plan_rounds([(0, 2), (0, 3), (1, 2), (1, 3)], "aabb", "a"))
    4
    """
    wanted, alone = set(pairs), set(one_at_a_time)
    ranks = sorted({rank for pair in wanted for rank in pair})
    by_device = [pair for games in tournament(ranks) for pair in games if pair in wanted]
    return min((_first_fit(order, host_of, alone) for order in (by_device, _by_host(by_device, host_of))), key=len)


def _by_host(pairs: Sequence[Pair], host_of: Sequence[str]) -> list[Pair]:
    """The pairs in the order of a tournament of hosts, one pair of each two hosts before the second of any."""
    names = list(dict.fromkeys(host_of))
    waiting: dict[Pair, list[Pair]] = {}
    for one, other in pairs:
        places = sorted((names.index(host_of[one]), names.index(host_of[other])))
        waiting.setdefault((places[0], places[1]), []).append((one, other))
    order = [(place, place) for place in range(len(names))]
    order += [game for games in tournament(range(len(names))) for game in games]
    found = []
    while any(waiting.values()):
        found += [waiting[game].pop(0) for game in order if waiting.get(game)]
    return found


def _first_fit(pairs: Iterable[Pair], host_of: Sequence[str], alone: set[str]) -> list[Round]:
    """Each pair into the first round that has room for it."""
    rounds: list[list[Pair]] = []
    taken: list[set[int | str]] = []
    for one, other in pairs:
        needs: set[int | str] = {one, other, *({host_of[one], host_of[other]} & alone)}
        place = next((place for place, used in enumerate(taken) if not used & needs), len(rounds))
        if place == len(rounds):
            rounds.append([])
            taken.append(set())
        rounds[place].append((one, other))
        taken[place] |= needs
    return [tuple(sorted(games)) for games in rounds]


def partners(games: Round) -> Mapping[int, int]:
    """Who meets whom in a round."""
    return {rank: peer for one, other in games for rank, peer in ((one, other), (other, one))}
