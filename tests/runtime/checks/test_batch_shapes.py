"""Ranks that were given batches of different forms stop, with no wrong number and no wait on the way."""

from collections.abc import Iterator

import pytest
import torch

from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.checks.batch_shapes import form_in_words, told_forms
from penstock.runtime.layout.compile import prove_plan
from penstock.runtime.layout.layout import make_layout
from tests.support.runtime.failing_ranks import different_batches
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import plan_of
from tests.support.runtime.world import World, leave

IN_TWO = plan_of([0, 2, 3], [["d0"], ["d1"]], num_microbatches=2)
REPLICAS = plan_of([0, 3], [["d0", "d1"]], num_microbatches=2)


@pytest.fixture(scope="module")
def ranks() -> Iterator[World]:
    """A world of its own, as it is spoilt afterwards."""
    made = World(3)
    yield made
    made.close()


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
def test_batches_that_differ_between_ranks(ranks: World, plan: Plan, shapes: list[list[tuple[int, int]]]) -> None:
    ranks.run(1, leave)
    ranks.start(2, different_batches, plan, shapes)
    (_, first), (_, second) = ranks.outcomes(2)
    assert (first[0], second[0]) == ("MismatchError", "MismatchError")
    told = [first[1], second[1]]
    last = len(shapes[0]) - 1
    odd, plain = shapes[-1][-1], shapes[0][-1]
    for text in told:
        assert f"step {last}, the form of the batch (with rank " in text
        for num_rows, length in (odd, plain):
            assert f"inputs float32 [{num_rows}, {length}, 3], targets float32 [{num_rows}]" in text
        assert "Give every rank the same whole batch" in text


def test_a_rank_that_only_hears_of_the_loss(ranks: World) -> None:
    ranks.run(1, leave)
    ranks.start(3, different_batches, IN_TWO, [[(6, 4)], [(6, 4)], [(6, 8)]])
    (first, _), (second, _), (third, found) = ranks.outcomes(3)
    assert (first, second, third) == (True, True, False)
    assert found[0] == "MismatchError"


def test_who_tells_whom() -> None:
    blocks = find_blocks(KINDS["mlp"].model())
    plan = plan_of([0, 2, 4, 7], [["d0", "d1"], ["d2", "d3"], ["d4"]], num_microbatches=2)
    proof = prove_plan(plan, blocks, None, None)
    layout = make_layout(proof.costs, blocks)
    forwards = {(0, 2), (1, 3), (2, 4), (3, 4)}
    assert told_forms(proof.program, layout, 6) == forwards | {(4, 0), (4, 1), (4, 2), (4, 3), (4, 5)}


def test_forms_in_words() -> None:
    rows = torch.zeros(4, 3)
    assert form_in_words("step", rows, None) == "(step) inputs float32 [4, 3], targets None"
    nested = {"x": rows.long(), "more": [None, 2, object()]}
    told = form_in_words("evaluate", nested, (rows,))
    expected = (
        "(evaluate) inputs {'x': *, 'more': [*, *, *]}: int64 [4, 3], None, 2, object, targets (*,): float32 [4, 3]"
    )
    assert told == expected
