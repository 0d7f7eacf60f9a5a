"""Payloads packed, unpacked, sliced and joined."""

import pickle

import pytest
import torch
from torch import Tensor

from penstock.errors import InputError
from penstock.runtime.tensors.packing import (
    dense_stride,
    flatten_dense,
    join_gradients,
    join_rows,
    pack,
    payload_from_meta,
    slice_payload,
    unpack,
)
from penstock.runtime.tensors.rows import Rows


def test_a_repeated_tensor_is_sent_once() -> None:
    x, odd = torch.randn(2, 3, requires_grad=True), torch.arange(2)
    packed, tensors = pack({"a": x, "b": (x, None, 5), "c": [odd]})
    assert [id(tensor) for tensor in tensors] == [id(x), id(odd)]
    assert packed.needs_grad == (True, False)
    assert not any(tensor.requires_grad for tensor in packed.tensors)
    back = unpack(packed, tensors)
    assert back["a"] is x
    assert back["b"][0] is x
    assert back["b"][1:] == (None, 5)
    assert back["c"][0] is odd


def test_metadata_is_all_the_receiver_needs() -> None:
    packed, _ = pack((torch.randn(2, 3), {"k": None}, 7))
    meta = pickle.loads(pickle.dumps(packed.meta))
    assert meta == packed.meta
    back = payload_from_meta(meta, packed.tensors)
    assert unpack(back, back.tensors)[1:] == ({"k": None}, 7)
    assert meta != pack((torch.randn(2, 4), {"k": None}, 7))[0].meta
    assert meta != pack((torch.randn(2, 3), {"k": None}, 8))[0].meta


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(2, 3, 4),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 3).t(),
        torch.randn(6, 8)[:, ::2],
        torch.randn(3, 1).expand(3, 4),
        torch.randn(()),
        torch.randn(0, 3),
        torch.randn(2, 1, 3).transpose(0, 1),
    ],
)
def test_sent_tensors_keep_their_layout(tensor: Tensor) -> None:
    stride = dense_stride(tensor)
    arrived = torch.empty_strided(tuple(tensor.shape), stride)
    into = flatten_dense(arrived)
    assert into.untyped_storage().data_ptr() == arrived.untyped_storage().data_ptr()
    sent = flatten_dense(tensor if stride == tuple(tensor.stride()) else tensor.contiguous())
    into.copy_(sent)
    assert torch.equal(arrived, tensor)


def test_only_tensors_with_gaps_become_contiguous() -> None:
    last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert dense_stride(last) == tuple(last.stride())
    assert dense_stride(torch.randn(4, 3).t()) == (1, 3)
    assert dense_stride(torch.randn(6, 8)[:, ::2]) == (4, 1)
    assert dense_stride(torch.randn(3, 1).expand(3, 4)) == (4, 1)


def test_rows_are_sliced_and_joined() -> None:
    packed, _ = pack((torch.arange(10.0).view(5, 2), torch.arange(5), "text"))
    first = slice_payload(packed, Rows(20, 25), Rows(20, 22))
    second = slice_payload(packed, Rows(20, 25), Rows(22, 25))
    assert first.tensors[1].tolist() == [0, 1]
    assert second.tensors[0].tolist() == [[4, 5], [6, 7], [8, 9]]
    joined = join_rows([first, second], [2, 3])
    assert all(torch.equal(one, other) for one, other in zip(joined.tensors, packed.tensors, strict=True))
    assert slice_payload(packed, Rows(0, 5), Rows(0, 5)) is packed


def test_a_tensor_without_rows_first_cannot_be_split() -> None:
    packed, _ = pack((torch.randn(5, 2), torch.randn(3, 3)))
    with pytest.raises(InputError, match=r"shape \(3, 3\) .* must be the number of rows \(5\)"):
        slice_payload(packed, Rows(0, 5), Rows(0, 2))


def test_parts_must_have_one_structure() -> None:
    with pytest.raises(InputError, match="differ in structure"):
        join_rows([pack((torch.randn(1, 2), 1))[0], pack((torch.randn(1, 2), 2))[0]], [1, 1])


def test_a_missing_gradient_counts_as_zero() -> None:
    ones = torch.ones(2, 3)
    joined = join_gradients([pack([ones, None, None])[0], pack([None, None, ones])[0]], [2, 2])
    assert joined[1] is None
    assert joined[0] is not None
    assert joined[0].tolist() == [[1] * 3] * 2 + [[0] * 3] * 2
    assert joined[2] is not None
    assert joined[2].tolist() == [[0] * 3] * 2 + [[1] * 3] * 2
