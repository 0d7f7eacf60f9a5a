"""What ranks compare when a pipeline is created, from gathered values made by hand."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from penstock.errors import InputError, MismatchError, PenstockError
from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.program.slices import slice_program
from penstock.runtime.checks.consistency import check_consistency
from penstock.runtime.layout.compile import compile_plan
from tests.support.runtime.user_models import plan_of

PLAN = plan_of([0, 1, 2], [["d0"], ["d1"]])


class Rank:
    """The arguments of a rank."""

    def __init__(
        self,
        *,
        seed: int = 0,
        plan: Plan = PLAN,
        value: float = 1.0,
        on_meta: bool = False,
        dtype: torch.dtype = torch.float32,
        bias: bool = True,
        failed: PenstockError | None = None,
    ) -> None:
        model = nn.Sequential(nn.Linear(2, 2, dtype=dtype), nn.Linear(2, 2, bias=bias))
        with torch.no_grad():
            for item in model.parameters():
                item.fill_(value)
        self.blocks = find_blocks(model.to("meta") if on_meta else model)
        self.program = slice_program(compile_plan(plan, self.blocks, None, None).program, None)
        self.seed, self.failed = seed, failed


def check(monkeypatch: pytest.MonkeyPatch, ranks: Sequence[Rank]) -> None:
    """Run the check of every rank with what all ranks have gathered; all must raise the same."""
    gathered: list[Any] = []
    errors: list[str] = []

    def note(objects: list[Any], own: Any, *, group: str) -> None:
        assert group == "control"
        gathered.append(own)
        objects[:] = [own] * len(objects)

    def deliver(objects: list[Any], _own: Any, *, group: str) -> None:
        objects[:] = gathered

    monkeypatch.setattr(dist, "get_world_size", lambda _group: len(ranks))
    found: list[PenstockError | None] = []
    for function in (note, deliver):
        monkeypatch.setattr(dist, "all_gather_object", function)
        for rank in ranks:
            error: PenstockError | None = None
            try:
                check_consistency(rank.blocks, rank.program, rank.seed, "control", rank.failed)
            except PenstockError as raised:
                error = raised
            if function is deliver:
                found.append(error)
    errors = [str(error) for error in found]
    assert errors == errors[:1] * len(ranks)
    if found[0] is not None:
        raise found[0]


def test_ranks_that_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    check(monkeypatch, [Rank()] * 3)
    # Ranks on the meta device have no values to compare.
    check(monkeypatch, [Rank(), Rank(on_meta=True), Rank()])
    check(monkeypatch, [Rank(on_meta=True), Rank()])


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"seed": 1}, "the seed"),
        ({"plan": plan_of([0, 1, 2], [["d0"], ["d1"]], num_microbatches=4)}, "the plan"),
        ({"plan": plan_of([0, 1, 2], [["d0"], ["d1"]], schedule="gpipe")}, "the plan"),
        ({"value": 2.0}, r"0\.weight"),
        ({"dtype": torch.float64}, r"0\.weight"),
        ({"dtype": torch.float64, "on_meta": True}, r"0\.weight"),
        ({"bias": False}, "the blocks of the model"),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_the_first_difference_is_named(
    monkeypatch: pytest.MonkeyPatch, odd: dict[str, Any], message: str, number: int
) -> None:
    ranks = [Rank(), Rank(), Rank()]
    ranks[number] = Rank(**odd)
    with pytest.raises(MismatchError, match=f"rank 0 and rank {number} disagree on {message}"):
        check(monkeypatch, ranks)


def test_values_are_compared_with_the_first_rank_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MismatchError, match=r"disagree on 0\.weight"):
        check(monkeypatch, [Rank(on_meta=True), Rank(), Rank(value=2.0)])
    check(monkeypatch, [Rank(on_meta=True), Rank(value=2.0), Rank(value=2.0)])


def test_the_error_of_one_rank_is_raised_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no values"):
        check(monkeypatch, [Rank(), Rank(failed=InputError("no values")), Rank(seed=3)])
