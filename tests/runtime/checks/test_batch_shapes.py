"""Ranks with batches of different shapes raise an error, without wrong numbers or a deadlock."""

import pytest
import torch

from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.program.slices import slice_program
from penstock.runtime.checks.batch_shapes import batch_check_pairs, describe_batch
from penstock.runtime.layout.compile import compile_plan
from penstock.runtime.layout.layout import make_layout
from tests.support.runtime.failing_ranks import different_batches
from tests.support.runtime.models import KINDS
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

IN_TWO = plan_of([0, 2, 3], [["d0"], ["d1"]], num_microbatches=2)
REPLICAS = plan_of([0, 3], [["d0", "d1"]], num_microbatches=2)


@pytest.mark.parametrize(
    ("plan", "shapes"),
    [
        (IN_TWO, [[(6, 4), (6, 8)], [(6, 4), (6, 4)]]),
        (IN_TWO, [[(6, 4), (6, 4)], [(6, 4), (6, 8)]]),
        (IN_TWO, [[(6, 4)], [(6, 8)]]),
        (IN_TWO, [[(6, 4), (6, 8), (6, 4)], [(6, 4), (6, 8), (6, 8)]]),
        (IN_TWO, [[(6, 4), (4, 4), (6, 4)], [(6, 4), (4, 4), (4, 4)]]),
        (REPLICAS, [[(6, 4)], [(6, 8)]]),
    ],
    ids=["sender is new", "receiver is new", "both are new", "both are known", "rows", "replicas"],
)
def test_batches_that_differ_between_ranks(
    rank_pool: RankPool, plan: Plan, shapes: list[list[tuple[int, int]]]
) -> None:
    (_, first), (_, second) = rank_pool.outcomes(2, different_batches, plan, shapes)
    assert (first[0], second[0]) == ("MismatchError", "MismatchError")
    last = len(shapes[0]) - 1
    odd, plain = shapes[-1][-1], shapes[0][-1]
    for text in (first[1], second[1]):
        assert f"step {last}, batch shapes (with rank " in text
        for num_rows, length in (odd, plain):
            assert f"inputs float32 [{num_rows}, {length}, 3], targets float32 [{num_rows}]" in text
        assert "Pass the same whole batch on every rank" in text


def test_a_rank_that_only_receives_the_loss(rank_pool: RankPool) -> None:
    (first, _), (second, _), (third, error) = rank_pool.outcomes(
        3, different_batches, IN_TWO, [[(6, 4)], [(6, 4)], [(6, 8)]]
    )
    assert (first, second, third) == (True, True, False)
    assert error[0] == "MismatchError"


def test_pairs_of_ranks_that_compare() -> None:
    blocks = find_blocks(KINDS["mlp"].model())
    plan = plan_of([0, 2, 4, 7], [["d0", "d1"], ["d2", "d3"], ["d4"]], num_microbatches=2)
    proof = compile_plan(plan, blocks, None, None)
    layout = make_layout(proof.costs, blocks)
    forwards = {(0, 2), (1, 3), (2, 4), (3, 4)}
    assert batch_check_pairs(slice_program(proof.program, None), layout, 6) == forwards | {
        (4, 0),
        (4, 1),
        (4, 2),
        (4, 3),
        (4, 5),
    }


def test_descriptions_of_batches() -> None:
    rows = torch.zeros(4, 3)
    assert describe_batch("step", rows, None) == "(step) inputs float32 [4, 3], targets None"
    nested = {"x": rows.long(), "more": [None, 2, object()]}
    description = describe_batch("evaluate", nested, (rows,))
    expected = (
        "(evaluate) inputs {'x': *, 'more': [*, *, *]}: int64 [4, 3], None, 2, object, targets (*,): float32 [4, 3]"
    )
    assert description == expected
