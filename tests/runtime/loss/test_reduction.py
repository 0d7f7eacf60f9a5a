"""Weights of parts, the labels that tell reductions apart, and parts without labels."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from penstock.runtime.loss.comparison import distinct_labels
from penstock.runtime.loss.reduction import ROWS, Reduction, candidates, fill_empty, masked_labels, weigh
from penstock.runtime.tensors.rows import Rows, microbatch_rows
from tests.support.reach import reach, reaches

FULL, SHIFTED = Reduction("y"), Reduction("y", is_shifted=True)


@st.composite
def label_tensors(draw: st.DrawFn, min_rows: int = 1) -> Tensor:
    num_rows, length = draw(st.integers(min_rows, 6)), draw(st.integers(0, 4))
    shape = (num_rows, length) if length else (num_rows,)
    count = math.prod(shape)
    values = draw(st.lists(st.sampled_from([-100, -100, 0, 3]), min_size=count, max_size=count))
    return torch.tensor(values).view(shape)


@reaches(classes=0.1, tokens=0.3)
@given(labels=label_tensors(min_rows=2))
def test_distinct_labels_tell_all_reductions_apart(labels: Tensor) -> None:
    changed = distinct_labels(labels)
    assert changed.shape == labels.shape
    num_rows = len(labels)
    tried = [ROWS, FULL] if labels.dim() == 1 or labels.shape[1] == 1 else [ROWS, FULL, SHIFTED]
    reach("classes", labels.dim() == 1)
    reach("tokens", len(tried) == 3)
    first = microbatch_rows(num_rows, 2)[0]
    weights = [weigh(item, {"y": changed}, first, num_rows) for item in tried]
    assert all(abs(one - other) > 0.04 for one, other in combinations(weights, 2))


@reaches(filled=0.2, uneven=0.2)
@given(labels=label_tensors(), num_parts=st.integers(1, 4), is_shifted=st.booleans())
def test_weights_add_up_and_no_part_is_empty(labels: Tensor, num_parts: int, is_shifted: bool) -> None:
    reduction = Reduction("['y']", is_shifted=is_shifted and labels.dim() > 1)
    named = {"['y']": labels}
    parts = [part for part in microbatch_rows(len(labels), num_parts) if part.num]
    weights = [weigh(reduction, named, part, len(labels)) for part in parts]
    counted = labels[:, 1:] if reduction.is_shifted else labels
    total = int((counted != -100).sum())
    assert all(map(math.isnan, weights)) if total == 0 else sum(weights) == pytest.approx(1.0)
    before = labels.clone()
    batch, changed = fill_empty({"y": labels}, [reduction], named, parts)
    assert torch.equal(labels, before)
    filled = batch["y"]
    for part, weight in zip(parts, weights, strict=True):
        own = slice(part.start, part.stop)
        if weight:
            assert total == 0 or torch.equal(filled[own], labels[own])
        elif reduction.is_shifted and labels.shape[1] > 1:
            assert (filled[own][:, 1:] != -100).sum() == 1
        elif not reduction.is_shifted:
            assert (filled[own] != -100).sum() == 1
    reach("filled", changed)
    reach(
        "uneven",
        len({round(weight * len(labels) / part.num, 9) for weight, part in zip(weights, parts, strict=True)}) > 1,
    )


def test_labels_are_integers_with_rows() -> None:
    labels = torch.tensor([[1, -100], [2, 3]])
    batch = ({"labels": labels, "image": torch.full((2, 3), 156, dtype=torch.uint8), "x": labels.double()}, labels[:1])
    assert list(masked_labels(batch, 2)) == ["[0]['labels']"]
    assert candidates(["a", "b"], {"a": labels, "b": labels[:, 0]}) == [
        ROWS,
        Reduction("a"),
        Reduction("a", is_shifted=True),
        Reduction("b"),
    ]
    assert weigh(Reduction("missing"), {}, Rows(0, 1), 4) == 0.25
