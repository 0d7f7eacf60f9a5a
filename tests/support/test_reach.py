"""Counts over the examples of a property test."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.reach import reach, reaches


@reaches(even=0.2, odd=0.2)
@settings(max_examples=50)
@given(number=st.integers(0, 1000))
def test_enough(number: int) -> None:
    reach("even", number % 2 == 0)
    reach("odd", number % 2)


@settings(max_examples=50)
@given(number=st.integers(0, 1000))
def refuse_everything(number: int) -> None:
    reach("negative", number < 0)
    reach("any")


def test_too_few() -> None:
    reaches(any=1.0)(refuse_everything)()
    with pytest.raises(AssertionError, match=r"only 0 of [0-9]+ examples reach 'negative'"):
        reaches(any=1.0, negative=0.0)(refuse_everything)()


@pytest.mark.parametrize("base", [1, 2])
@reaches(any=1.0)
@settings(max_examples=5)
@given(number=st.integers())
def test_arguments_of_pytest_are_passed_on(base: int, number: int) -> None:
    assert base in (1, 2)
    assert isinstance(number, int)
    reach("any")
