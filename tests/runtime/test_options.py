"""The options of a pipeline."""

import dataclasses

import pytest

import penstock
from penstock.runtime.options import PipelineOptions
from tests.support.runtime.assembly import PLAN
from tests.support.runtime.models import KINDS


def test_options_are_frozen() -> None:
    options = PipelineOptions()
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.seed = 1  # type: ignore[misc]


def test_the_options_are_the_keyword_arguments_of_a_pipeline() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
        penstock.Pipeline(KINDS["mlp"].model(), PLAN, KINDS["mlp"].loss, sed=1)
