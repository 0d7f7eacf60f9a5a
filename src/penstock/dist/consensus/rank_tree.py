"""A tree over ranks, over which values go to one rank and from it to all.

No rank has more than `FAN_OUT` children, so its connections and messages do not grow with the number of ranks. Up to
`FAN_OUT` + 1 ranks, the root exchanges messages with each of them.
"""

from collections.abc import Iterable, Iterator

FAN_OUT = 8


class RankTree:
    """A tree over ranks in the order of levels.

    Args:
        ranks: The ranks; the first is the root.
        fan_out: Maximum number of children of a rank.

    Example:
        >>> tree = RankTree([5, 0, 1, 2], fan_out=2)
        >>> tree.children(5), tree.parent(2), tree.below(0), tree.height(5)
        ((0, 1), 0, (0, 2), 2)
    """

    def __init__(self, ranks: Iterable[int], fan_out: int = FAN_OUT) -> None:
        self._ranks = tuple(ranks)
        self._place = {rank: place for place, rank in enumerate(self._ranks)}
        self._fan_out = fan_out

    @property
    def root(self) -> int:
        """The root."""
        return self._ranks[0]

    def __contains__(self, rank: int) -> bool:
        return rank in self._place

    def parent(self, rank: int) -> int | None:
        """Return the rank above; None for the root."""
        place = self._place[rank]
        return self._ranks[(place - 1) // self._fan_out] if place else None

    def children(self, rank: int) -> tuple[int, ...]:
        """Return the ranks directly below."""
        first = self._place[rank] * self._fan_out + 1
        return self._ranks[first : first + self._fan_out]

    def below(self, rank: int) -> tuple[int, ...]:
        """Return a rank and all ranks below it, level by level."""
        found: list[int] = []
        first, last = self._place[rank], self._place[rank] + 1
        while first < len(self._ranks):
            found += self._ranks[first:last]
            first, last = first * self._fan_out + 1, last * self._fan_out + 1
        return tuple(found)

    def height(self, rank: int) -> int:
        """Return the number of levels below a rank."""
        children = self.children(rank)
        # Levels fill up from the left, so the first child has the most below it.
        return 1 + self.height(children[0]) if children else 0

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield every pair of a parent and a child."""
        for rank in self._ranks:
            for child in self.children(rank):
                yield rank, child


def tree_from(root: int, num_ranks: int) -> RankTree:
    """Return a tree over all ranks with a given root; the others are in order."""
    return RankTree((root, *(rank for rank in range(num_ranks) if rank != root)))
