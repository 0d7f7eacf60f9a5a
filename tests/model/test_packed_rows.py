"""Tensors of packed entries get a dimension of rows; everything else remains as it is."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model import find_blocks, plain_inputs
from penstock.model.packed_rows import unfold_packed
from penstock.model.trees import check_rows, rows_of, same_bits
from tests.support.reach import reach, reaches

SIZES = st.lists(st.integers(1, 3), min_size=3, max_size=3)


def batch(sizes: list[list[int]]) -> dict[str, Tensor]:
    grid = torch.tensor(sizes)
    return {
        "tokens": torch.arange(5 * len(grid)).view(-1, 5),
        "patches": torch.arange(2 * int(grid.prod(1).sum())).view(-1, 2).double(),
        "grid": grid,
    }


@reaches(equal=0.1, unequal=0.1, one_row=0.05)
@given(st.lists(SIZES, min_size=1, max_size=4), st.booleans())
def test_rows_are_those_of_the_sizes(sizes: list[list[int]], are_equal: bool) -> None:
    if are_equal:
        sizes = [sorted(sizes[0], reverse=bool(row % 2)) for row in range(len(sizes))]
    packed = batch(sizes)
    if len(packed["patches"]) == len(sizes):
        return  # one entry for each row
    if len(set(packed["grid"].prod(1).tolist())) > 1:
        reach("unequal")
        with pytest.raises(InputError, match="not equally many"):
            plain_inputs(packed)
        return
    reach("equal")
    if len(sizes) == 1:
        reach("one_row")
    folded = plain_inputs(packed)
    check_rows(folded)
    assert rows_of(folded) == len(sizes)
    start = 0
    for row, entries in zip(folded["patches"], packed["grid"].prod(1).tolist(), strict=True):
        assert torch.equal(row, packed["patches"][start : start + entries])
        start += entries
    assert same_bits(unfold_packed(folded), packed)
    assert same_bits(plain_inputs(folded), folded)


def test_inputs_without_packed_entries_are_not_changed() -> None:
    rows = {"tokens": torch.ones(4, 3), "sizes": torch.tensor([[2, 2]] * 4)}
    for inputs in (
        rows,
        {**rows, "other": torch.ones(5, 2)},
        {"images": torch.ones(6, 3), "size": torch.tensor([[2, 3]])},  # the same size for all 6 rows
        torch.ones(3),
    ):
        assert same_bits(plain_inputs(inputs), inputs)


class Patches(nn.Module):
    """Adds a row's patches to its tokens."""

    def __init__(self, *, by_first: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
        self.by_first = by_first

    def forward(self, tokens: Tensor, patches: Tensor, grid: Tensor) -> Tensor:
        scale = 1 / len(patches) if self.by_first else 1.0
        entries: Tensor = self.layers[0](patches.view(-1, 2)) * scale
        sums = entries.view(len(tokens), -1, 2).sum(1)
        result: Tensor = self.layers[1](tokens[:, :2] + sums)
        return result


def test_a_model_with_packed_entries_is_split() -> None:
    inputs = {key: item.float() if key != "grid" else item for key, item in batch([[1, 2, 3]] * 4).items()}
    model = Patches(by_first=False)
    folded = plain_inputs(inputs)
    first, second = find_blocks(model, None, folded)
    assert torch.equal(second.call(first.call(folded), folded), model(**inputs))


def test_a_model_that_gives_other_results_for_rows_is_refused() -> None:
    inputs = {key: item.float() if key != "grid" else item for key, item in batch([[1, 2, 3]] * 4).items()}
    with pytest.raises(InputError, match="gives other results if the entries"):
        find_blocks(Patches(by_first=True), None, plain_inputs(inputs))
