import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.profile.collectives import (
    MeasuredAllReduce,
    estimated_all_reduce,
    measured_all_reduce,
    read_all_reduces,
)
from tests.support.reach import reach, reaches

TABLE = "num_gpus,bytes,seconds\n4,2000,3e-5\n2,1000,1e-5\n2,3000,4e-5\n4,1000,2e-5\n"


@reaches(between=0.05, beyond=0.1)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), st.floats(1e-6, 10)), min_size=2, max_size=6, unique_by=lambda item: item[0]
    ),
    st.floats(1, 1e10),
)
def test_measured_sizes_return_what_was_measured(points: list[tuple[int, float]], size: float) -> None:
    points.sort()
    sizes, seconds = zip(*points, strict=True)
    table = MeasuredAllReduce(num_devices=2, num_bytes=sizes, seconds=seconds)
    assert [table.at(each) for each in sizes] == list(seconds)
    assert table.at(sizes[0] / 2) == seconds[0]
    if size > sizes[-1]:
        reach("beyond")
        assert table.at(size) >= seconds[-1]
    elif size > sizes[0]:
        reach("between")
        right = next(index for index, each in enumerate(sizes) if each >= size)
        ends = seconds[right - 1], seconds[right]
        assert min(ends) * (1 - 1e-9) <= table.at(size) <= max(ends) * (1 + 1e-9)


def test_a_table_in_any_order() -> None:
    two, four = read_all_reduces(TABLE, where="t.csv")
    assert (two.num_devices, two.num_bytes, two.seconds) == (2, (1000, 3000), (1e-5, 4e-5))
    all_reduce_s = measured_all_reduce((two, four))
    assert all_reduce_s(4, 1500) == pytest.approx(2.5e-5)
    with pytest.raises(InputError, match="over 8 devices"):
        all_reduce_s(8, 1000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus,bytes,seconds\n2,1,1\n", "other columns"),
        ("num_gpus,bytes,seconds\n2,many,1\n", "not numbers"),
        ("num_gpus,bytes,seconds\n2,1,1\n", "at least two"),
        ("num_gpus,bytes,seconds\n2,1,1\n2,1,2\n", "ascend"),
        ("num_gpus,bytes,seconds\n2,1,1\n2,2,nan\n", "positive and finite"),
        ("num_gpus,bytes,seconds\n1,1,1\n1,2,2\n", "2 to"),
    ],
)
def test_bad_tables(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_all_reduces(text, where="t.csv")


def test_the_estimate_grows_with_devices_and_bytes() -> None:
    all_reduce_s = estimated_all_reduce(300e9)
    assert all_reduce_s(2, 1e9) < all_reduce_s(4, 1e9) < all_reduce_s(8, 1e9) < all_reduce_s(8, 2e9)
    # Two devices send half of the bytes twice.
    assert all_reduce_s(2, 2e9) - all_reduce_s(2, 1e9) == pytest.approx(1e9 / (300e9 * 0.72))
    assert math.isfinite(all_reduce_s(2, 0))
