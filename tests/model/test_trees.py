"""Rows and bytes of nested tensors."""

from collections import UserDict

import pytest
import torch

from penstock.errors import InputError
from penstock.model.trees import bytes_of, check_rows, plain_inputs, rows_of, same_bits, with_rows
from penstock.runtime.tensors.batch import slice_rows
from penstock.runtime.tensors.rows import Rows


def test_rows_are_the_first_dimension_of_the_first_tensor_in_which_it_is_not_one() -> None:
    assert rows_of({"flag": torch.tensor(1), "x": [torch.zeros(5, 2)], "y": torch.zeros(3)}) == 5
    positions = torch.zeros(1, 7)
    assert rows_of({"positions": positions, "x": torch.zeros(5, 2), "n": 3}) == 5
    assert rows_of((positions, torch.zeros(1))) == 1
    with pytest.raises(InputError, match="no input tensor has rows"):
        rows_of((1, torch.tensor(1.0)))


def test_tensors_with_other_rows_are_refused() -> None:
    check_rows({"x": [torch.zeros(5, 2)], "y": torch.zeros(1, 3), "z": torch.tensor(1)})
    with pytest.raises(InputError, match=r"shapes \(5, 2\) and \(3,\), which differ in their rows"):
        check_rows({"x": [torch.zeros(5, 2)], "y": torch.zeros(3)})


def test_fewer_and_more_rows() -> None:
    x, mask, one = torch.arange(3), torch.zeros(2, 2), torch.zeros(1, 2)
    fewer, same, same_one, _ = with_rows((x, mask, one, None), 2)
    assert fewer.tolist() == [0, 1]
    assert same is mask
    assert same_one is one
    assert with_rows((x,), 7)[0].tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_a_list_of_dicts_has_an_item_for_every_row() -> None:
    boxes = [{"boxes": torch.zeros(number, 4)} for number in (2, 3, 1)]
    batch = plain_inputs({"labels": boxes, "pixels": torch.zeros(3, 2), "scales": [torch.zeros(3), torch.ones(3)]})
    assert rows_of(batch) == 3
    check_rows(batch)
    assert [len(item["boxes"]) for item in with_rows(batch, 4)["labels"]] == [2, 3, 1, 2]
    assert [len(item["boxes"]) for item in slice_rows(batch, Rows(1, 3), torch.device("cpu"))["labels"]] == [3, 1]
    assert len(slice_rows(batch, Rows(1, 3), torch.device("cpu"))["scales"]) == 2
    with pytest.raises(InputError, match=r"shape \(2, 2\) and a list of 3 dicts"):
        check_rows({**batch, "pixels": torch.zeros(2, 2)})
    with pytest.raises(InputError, match="dicts of rows 0 and 1 have different keys"):
        check_rows(plain_inputs([{"a": torch.zeros(1)}, {"b": torch.zeros(1)}]))


def test_mappings_become_dicts() -> None:
    nested = plain_inputs(UserDict(ids=1, more=UserDict(x=2), pair=(UserDict(), [3])))
    assert nested == {"ids": 1, "more": {"x": 2}, "pair": ({}, [3])}
    assert type(nested) is type(nested["more"]) is type(nested["pair"][0]) is dict
    assert plain_inputs(nested) == nested


def test_a_duplicate_tensor_is_counted_once() -> None:
    x = torch.zeros(4, 3)
    assert bytes_of((x, [x], torch.zeros(2, dtype=torch.int64), None)) == 4 * 3 * 4 + 2 * 8
    assert bytes_of(torch.zeros(1, 3).expand(4, 3)) == 48


def test_the_same_bits() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    assert same_bits((nan, None, 2), (nan.clone(), None, 2))
    assert not same_bits((nan,), (torch.tensor([float("nan"), 1.5]),))
    assert not same_bits((nan, 1), (nan, 2))
    assert not same_bits((nan,), [nan])
    assert not same_bits(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
    assert not same_bits(torch.zeros(2), 0)
    assert not same_bits(torch.zeros(2), torch.zeros(1, 2))
