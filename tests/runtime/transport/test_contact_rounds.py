"""First contact in rounds: every link once, no rank twice in a round, few rounds."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.transport.contact_rounds import Link, contact_rounds
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples


def chain(num_ranks: int) -> list[Link]:
    return [link for rank in range(num_ranks - 1) for link in ((rank, rank + 1), (rank + 1, rank))]


def degree(links: set[Link]) -> int:
    pairs = {frozenset(link) for link in links}
    return max(sum(rank in pair for pair in pairs) for rank in range(20))


def test_a_chain_of_1024_ranks_needs_four_rounds() -> None:
    rounds = contact_rounds(chain(1024))
    assert len(rounds) == 4
    assert sum(map(len, rounds)) == 2046


def test_a_ring_of_stages() -> None:
    """With several stages on each device, the last device sends to the first."""
    assert len(contact_rounds([*chain(8), (7, 0), (0, 7)])) == 4
    assert len(contact_rounds([*chain(7), (6, 0), (0, 6)])) == 6
    assert contact_rounds([]) == []


@reaches(dense=0.1, one_way=0.1)
@examples(200)
@given(st.sets(st.tuples(st.integers(0, 19), st.integers(0, 19)).filter(lambda link: link[0] != link[1]), min_size=1))
def test_any_links(links: set[Link]) -> None:
    rounds = contact_rounds(links)
    assert sorted(link for links_of_round in rounds for link in links_of_round) == sorted(links)
    for links_of_round in rounds:
        ranks = [rank for link in links_of_round for rank in link]
        assert len(ranks) == len(set(ranks))
    assert len(rounds) <= 2 * (2 * degree(links) - 1)
    if degree(links) > 3:
        reach("dense")
    if any((target, source) not in links for source, target in links):
        reach("one_way")
    assert contact_rounds(sorted(links, reverse=True)) == rounds
