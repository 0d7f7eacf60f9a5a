"""Digests of tensors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.checks import tensor_digest
from penstock.runtime.checks.tensor_digest import digest_values
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

TYPES = (torch.float32, torch.bfloat16, torch.float64, torch.uint8, torch.bool, torch.int64, torch.complex64)


def by_numpy(tensor: torch.Tensor) -> tuple[int, int]:
    """The same in Python's integers."""
    raw = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    words = np.frombuffer(raw + b"\0" * (-len(raw) % 8), dtype="<u8")
    first = sum(int(word) for word in words)
    second = sum(int(word) * ((number * 0x9E3779B97F4A7C15) | 1) for number, word in enumerate(words))
    return _signed(first), _signed(second)


def _signed(number: int) -> int:
    number %= 1 << 64
    return number - (1 << 64) if number >= 1 << 63 else number


def bits(dtype: torch.dtype, num: int, seed: int) -> torch.Tensor:
    """Any values of a type, NaN included."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(2, (num,), generator=generator).bool()
    return torch.randint(256, (num * dtype.itemsize,), dtype=torch.uint8, generator=generator).view(dtype)


@reaches(odd=0.1, several_chunks=0.1, view=0.1)
@examples(150)
@given(
    dtype=st.sampled_from(TYPES),
    num=st.integers(0, 40),
    offset=st.integers(0, 3),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_digests_are_exact_in_any_chunks(
    dtype: torch.dtype, num: int, offset: int, seed: int, data: st.DataObject
) -> None:
    tensor = bits(dtype, num + offset, seed)[offset:]
    expected = by_numpy(tensor)
    before = tensor_digest.CHUNK_WORDS
    try:
        for chunk in (1, 3, before):
            tensor_digest.CHUNK_WORDS = chunk
            assert digest_values(tensor) == expected
    finally:
        tensor_digest.CHUNK_WORDS = before
    if num:
        raw = tensor.clone().view(-1).view(torch.uint8)
        at = data.draw(st.integers(0, raw.numel() - 1))
        raw[at] ^= 1 << (0 if dtype is torch.bool else data.draw(st.integers(0, 7)))
        assert digest_values(raw.view(dtype)) != expected
    reach("odd", num * dtype.itemsize % 8 != 0)
    reach("several_chunks", num * dtype.itemsize > 8)
    reach("view", offset > 0 and num > 0)


def test_the_layout_in_memory_does_not_matter() -> None:
    tensor = torch.randn(4, 6)
    assert digest_values(tensor.t().contiguous().t()) == digest_values(tensor)
    assert digest_values(tensor[:, ::2]) == digest_values(tensor[:, ::2].clone())
    assert digest_values(torch.randn(3, dtype=torch.complex64).conj()) != (0, 0)
    assert digest_values(tensor[[1, 0, 2, 3]]) != digest_values(tensor)


def test_sums_of_floating_point_numbers_would_miss_a_change() -> None:
    one, other = torch.full((3,), 2.0**60, dtype=torch.float64), torch.full((3,), 2.0**60, dtype=torch.float64)
    one[0], other[0] = 1.0, 2.0
    assert one.sum() == other.sum()
    assert digest_values(one) != digest_values(other)


@pytest.mark.parametrize("num", [1 << 22])
def test_a_digest_needs_little_memory(num: int) -> None:
    tensor = torch.zeros(num)
    with torch.profiler.profile(profile_memory=True) as profile:
        digest_values(tensor)
    allocated = max(item.cpu_memory_usage for item in profile.events())
    assert allocated <= 2 * 8 * tensor_digest.CHUNK_WORDS
