"""A recipe survives the text form of a profile's source in a plan file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bundle.sources import ProfileSource, parse_source
from penstock.profile import Attention, Checkpointing, Precision, Recipe
from tests.support.reach import reach, reaches

RECIPES = st.builds(
    Recipe,
    precision=st.sampled_from(Precision.__args__),  # type: ignore[attr-defined]
    attention=st.sampled_from(Attention.__args__),  # type: ignore[attr-defined]
    checkpointing=st.sampled_from(Checkpointing.__args__),  # type: ignore[attr-defined]
    tensor_parallel=st.integers(1, 8),
    fp32_head=st.booleans(),
)


@reaches(groups=0.3, wide=0.2, none=0.01)
@given(st.one_of(st.none(), RECIPES), st.booleans())
def test_text_and_back(recipe: Recipe | None, untied: bool) -> None:
    source = ProfileSource("gpt2", ("T4",), 4, 128, recipe, untied)
    assert parse_source(source.text) == source
    if recipe is None:
        reach("none")
        return
    if recipe.tensor_parallel > 1:
        reach("groups")
    if recipe.fp32_head:
        reach("wide")


def test_another_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="fp7"):
        parse_source("gpt2 --precision fp7")
