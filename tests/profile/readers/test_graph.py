"""Conversion of a graph to a chain, on graphs small enough to check by hand."""

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.profile.limits import MAX_BYTES, MAX_SECONDS
from penstock.profile.readers.graph import Chain, Node, Tensor, chain_profile, check_bytes, check_seconds, linearise
from tests.support.reach import reach, reaches


def node(number: int, parameter_bytes: int = 0, *, is_input: bool = False, seconds: float = 1.0) -> Node:
    return Node(
        number=number,
        label="op",
        forward_s=seconds,
        backward_s=2 * seconds,
        parameter_bytes=parameter_bytes,
        is_input=is_input,
    )


def tensor(source: int, size_bytes: int, *users: int) -> Tensor:
    return Tensor(source=source, size_bytes=size_bytes, users=users)


def chain_of(nodes: Iterable[Node], tensors: Iterable[Tensor]) -> Chain:
    return linearise(list(nodes), list(tensors), where="g", where_edge=lambda a, b: f"g:{a}-{b}")


def numbers(chain: Chain) -> list[list[int]]:
    return [[item.number for item in unit] for unit in chain.units]


def test_lowest_ready_node_first() -> None:
    # 9 feeds 1, so 1 has to wait although it is the lowest; 2 and 3 are ready from the start.
    chain = chain_of([node(i, 1) for i in (1, 2, 3, 9)], [tensor(9, 1, 1)])
    assert numbers(chain) == [[2], [3], [9], [1]]


def test_nodes_without_parameters_join_the_unit_before() -> None:
    nodes = [node(1), node(2), node(3, 8), node(4), node(5, 8), node(6, 8), node(7)]
    chain = chain_of(nodes, [tensor(i, 1, i + 1) for i in range(1, 7)])
    assert numbers(chain) == [[1, 2], [3, 4], [5], [6, 7]]


def test_a_tensor_alive_across_a_cut_counts_once_and_only_while_it_is_needed() -> None:
    #   input 1 (100) -> 2 and 4        2 (10) -> 3, 4, 5       3 (20) -> 4      4 (40) -> 5      5 (80) -> nobody
    nodes = [node(1, is_input=True), *(node(i, 1) for i in (2, 3, 4, 5))]
    tensors = [tensor(1, 100, 2, 4), tensor(2, 10, 3, 4, 5), tensor(3, 20, 4), tensor(4, 40, 5), tensor(5, 80)]
    chain = chain_of(nodes, tensors)
    # after 2: the input (for 4) + 2;  after 3: the input + 2 + 3;  after 4: 2 (for 5) + 4;  after 5: nothing
    assert chain.cut_bytes() == [110, 130, 50, 0]
    # 2 uses the input; 3 uses 2; 4 uses the input, 2 and 3; 5 uses 2 and 4
    assert chain.used_bytes() == [100, 10, 130, 50]


def test_a_tensor_used_twice_inside_a_unit_is_saved_once() -> None:
    nodes = [node(1, 1), node(2, 1), node(3), node(4)]
    chain = chain_of(nodes, [tensor(1, 7, 2, 3, 4), tensor(2, 5, 3), tensor(3, 3, 4)])
    assert numbers(chain) == [[1], [2, 3, 4]]
    assert chain.used_bytes() == [0, 15]
    assert chain.cut_bytes() == [7, 0]


def test_profile_of_a_chain() -> None:
    nodes = [node(1, is_input=True), node(2, seconds=0.5), node(3, 8), node(4, seconds=0.25)]
    chain = chain_of(nodes, [tensor(1, 100, 2), tensor(2, 10, 3), tensor(3, 20, 4)])
    profile = chain_profile(chain, [1, 2], name="n", micro_batch_size=4, kind="k", where="g", assumptions=["a"])
    first, second = profile.units
    assert (profile.micro_batch_size, profile.kinds, profile.input_bytes, profile.assumptions) == (
        4,
        ("k",),
        100,
        ("a",),
    )
    assert (first.name, first.parameter_bytes) == ("node2 op", 0)
    assert (second.name, second.parameter_bytes) == ("node3 op", 8)
    # without parameters there is no weight gradient; with them it is half: (2 + 0.5) / 2
    assert (first.times[0].forward_s, first.times[0].input_grad_s, first.times[0].weight_grad_s) == (0.5, 1.0, 0.0)
    assert (second.times[0].forward_s, second.times[0].input_grad_s, second.times[0].weight_grad_s) == (
        1.25,
        1.25,
        1.25,
    )
    assert [unit.sizes[0].saved_bytes for unit in profile.units] == [1, 2]


@pytest.mark.parametrize("rows", [0, -1, 2**40 + 1])
def test_rows_must_be_sensible(rows: int) -> None:
    chain = chain_of([node(1)], [])
    with pytest.raises(InputError, match="micro-batch size must be"):
        chain_profile(chain, [0], name="n", micro_batch_size=rows, kind="k", where="g", assumptions=())


def test_sums_beyond_the_limits_are_refused() -> None:
    chain = chain_of([node(1, MAX_BYTES), node(2, seconds=MAX_SECONDS)], [])
    with pytest.raises(InputError, match=r"g, layer 'node1 op': total forward time exceeds"):
        chain_profile(chain, [0], name="n", micro_batch_size=1, kind="k", where="g", assumptions=())
    chain = chain_of([node(1, 1), node(2, 1), node(3, 1)], [tensor(1, MAX_BYTES, 3), tensor(2, 1, 3)])
    with pytest.raises(InputError, match=r"total size of the cut exceeds 2\*\*60 bytes"):
        chain_profile(chain, [0, 0, 0], name="n", micro_batch_size=1, kind="k", where="g", assumptions=())


def test_a_cycle_is_named_without_the_nodes_that_only_wait_for_it() -> None:
    nodes = [node(i) for i in range(1, 7)]
    tensors = [tensor(1, 1, 2), tensor(2, 1, 3), tensor(3, 1, 4, 5), tensor(4, 1, 2), tensor(5, 1, 6)]
    with pytest.raises(InputError) as caught:
        chain_of(nodes, tensors)
    assert caught.value.what == "the graph has a cycle: node2 -> node3 -> node4 -> node2"
    assert caught.value.where == "g:4-2"


def test_a_node_that_waits_for_itself() -> None:
    with pytest.raises(InputError, match="node3 -> node3"):
        chain_of([node(3)], [tensor(3, 1, 3)])


def test_a_long_cycle_is_shortened() -> None:
    count = 5000
    with pytest.raises(InputError) as caught:
        chain_of([node(i) for i in range(count)], [tensor(i, 1, (i + 1) % count) for i in range(count)])
    assert "(5000 nodes)" in caught.value.what
    assert len(caught.value.what) < 300


def test_nothing_to_compute() -> None:
    with pytest.raises(InputError, match="no nodes"):
        chain_of([], [])
    with pytest.raises(InputError, match="every node is an input"):
        chain_of([node(1, is_input=True)], [])


@pytest.mark.parametrize("value", [-1, -1e-9, math.inf, -math.inf, math.nan, 1e300, 10**400])
def test_unfit_numbers(value: float) -> None:
    with pytest.raises(InputError, match="the thing"):
        check_seconds(value, "the thing", "g")
    with pytest.raises(InputError, match="the thing"):
        check_bytes(value, "the thing", "g")


@reaches(merged=0.05, inputs=0.1, skips=0.1, cuts=0.1)
@given(st.integers(1, 14), st.integers(0, 2**32))
def test_cuts_agree_with_their_definition(count: int, seed: int) -> None:
    rng = random.Random(seed)
    nodes = [node(i, rng.choice([0, 1]), is_input=i > 0 and rng.random() < 0.2) for i in range(count)]
    real = [item.number for item in nodes if not item.is_input]
    tensors = [
        tensor(
            i, rng.randrange(100), *[user for user in real if (user > i or nodes[i].is_input) and rng.random() < 0.3]
        )
        for i in range(count)
    ]
    chain = chain_of(nodes, tensors)
    index = {number: unit for unit, replicas in enumerate(numbers(chain)) for number in replicas}
    assert sorted(index) == real
    assert all(index[a.source] <= index[user] for a in tensors if a.source in index for user in a.users)
    for cut, found in enumerate(chain.cut_bytes()):
        alive = [
            item.size_bytes
            for item in tensors
            if index.get(item.source, -1) <= cut and any(index[user] > cut for user in item.users)
        ]
        assert found == sum(alive)
        reach("skips", len(alive) > 1)
        reach("cuts", found > 0)
    reach("merged", len(set(index.values())) < len(real))
    reach("inputs", len(real) < count)
