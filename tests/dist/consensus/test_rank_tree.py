"""A tree over ranks."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.dist.consensus.rank_tree import RankTree, tree_from
from tests.support.reach import reach, reaches


@reaches(deep=0.2)
@given(ranks=st.permutations(range(30)), num_ranks=st.integers(1, 30), fan_out=st.integers(1, 8))
def test_every_rank_is_below_the_root_once(ranks: list[int], num_ranks: int, fan_out: int) -> None:
    ranks = ranks[:num_ranks]
    tree = RankTree(ranks, fan_out)
    assert tree.root == ranks[0]
    assert sorted(tree.below(tree.root)) == sorted(ranks)
    edges = list(tree.edges())
    assert len(edges) == num_ranks - 1
    for parent, child in edges:
        assert tree.parent(child) == parent
    for rank in ranks:
        children = tree.children(rank)
        assert len(children) <= fan_out
        assert sorted(tree.below(rank)) == sorted([rank, *(item for child in children for item in tree.below(child))])
        assert tree.height(rank) == (1 + max(map(tree.height, children)) if children else 0)
    if tree.height(tree.root) > 2:
        reach("deep")


def test_connections_of_a_rank_do_not_grow() -> None:
    tree = tree_from(700, 1024)
    degrees = [len(tree.children(rank)) + (tree.parent(rank) is not None) for rank in range(1024)]
    assert (max(degrees), tree.height(700)) == (9, 4)
    assert tree.children(700) == tuple(range(8))
