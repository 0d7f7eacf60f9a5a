"""The order in which ranks exchange their first messages: links in rounds, in which no rank has more than one link.

[Note: first contact] NCCL connects two ranks at their first message and blocks both until then. If every rank takes its
links in one sorted order, a chain of stages connects one link after the other. In rounds, all links of a round connect
at the same time. Pairs of ranks are edges of a graph, and a round is a colour: a chain needs two colours, a ring of an
odd number of ranks three. Each pair has two directed links, so there are twice as many rounds.
"""

from collections import defaultdict
from collections.abc import Collection

Link = tuple[int, int]
"""The rank that sends, and the rank that receives."""


def contact_rounds(links: Collection[Link]) -> list[list[Link]]:
    """Order links in rounds. Every rank computes the same.

    A pair gets the first colour that neither rank uses yet. If no rank has more than d neighbours, there are at most
    2 d - 1 colours, and twice as many rounds.

    Args:
        links: Directed links between different ranks.

    Returns:
        The links of each round, sorted. All links are in one round each, and no rank twice in a round.

    Example:
        >>> contact_rounds([(0, 1), (1, 0), (1, 2), (2, 1), (2, 3)])
        [[(0, 1), (2, 3)], [(1, 0)], [(1, 2)], [(2, 1)]]
    """
    used: defaultdict[int, set[int]] = defaultdict(set)
    rounds: defaultdict[int, list[Link]] = defaultdict(list)
    wanted = set(links)
    for low, high in sorted({(min(link), max(link)) for link in links}):
        taken = used[low] | used[high]
        colour = next(number for number in range(len(taken) + 1) if number not in taken)
        used[low].add(colour)
        used[high].add(colour)
        for direction, link in enumerate(((low, high), (high, low))):
            if link in wanted:
                rounds[2 * colour + direction].append(link)
    return [rounds[number] for number in sorted(rounds)]
