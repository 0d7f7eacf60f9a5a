"""Sizes of a trained model that differ from the profile, seen by one rank."""

import warnings

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from penstock.errors import ProfileWarning
from penstock.model.blocks import find_blocks
from penstock.profile.types import Profile
from penstock.runtime.checks.profile_drift import TOLERANCE, ProfileDrift
from penstock.runtime.executor.context import Iteration
from penstock.runtime.layout.batch_rows import BatchRows
from penstock.runtime.layout.layout import StageView
from penstock.runtime.tensors import pack
from penstock.runtime.tensors.rows import Rows
from tests.support.small import equal_profile

BLOCKS = find_blocks(nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)))
PARAMETER_BYTES, CUT_BYTES, INPUT_BYTES = 64, 400, 400
STAGES = [StageView(n, n + 1, (1.0,), (n,), (n,), recompute=False, needs_sync=False) for n in range(2)]
ROWS = Rows(0, 2)


def profile_of(
    *, parameter_bytes: int = PARAMETER_BYTES, cut_bytes: int = CUT_BYTES, input_bytes: int = INPUT_BYTES
) -> Profile:
    profile = equal_profile(2, parameter_bytes=parameter_bytes, cut_bytes=cut_bytes)
    return replace(profile, input_bytes=input_bytes)


def said(
    profile: Profile | None, *, rank: int = 0, num_floats: int = 100, out: int | None = 200, signature: str = "form"
) -> list[str]:
    """What a rank warns of in three iterations of two rows; `out` floats leave stage `rank`."""
    drift = ProfileDrift(profile, BLOCKS, STAGES, rank)
    found = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            batch = torch.zeros(2, num_floats)
            rows = BatchRows(2, 1, [(1.0,), (1.0,)])
            iteration = Iteration(step, batch, None, 2, rows, f"{signature} {step // 2}", torch.device("cpu"))
            drift.begin(iteration)
            if iteration.on_output is not None and out is not None:
                iteration.on_output(rank, pack(torch.zeros(out))[0], ROWS)
            drift.finish()
        found = [item for item in caught if issubclass(item.category, ProfileWarning)]
    return [str(item.message).partition(": ")[2].partition(". Training")[0] for item in found]


def test_a_model_as_profiled() -> None:
    for rank in range(2):
        assert said(profile_of(), rank=rank) == []
    assert said(None) == []
    # A profile without these sizes says nothing about them.
    assert said(profile_of(cut_bytes=0, input_bytes=0), num_floats=7, out=7) == []


def test_the_first_difference_is_said_once() -> None:
    inputs = "2 rows of the inputs take 1.60 kB, but 800 B in the profile"
    parameters = "the parameters of layer '0' take 64 B, but those of 'u0' take 100 B in the profile"
    outputs = "the activations after layer 'u0' take 1.60 kB for 2 rows, but 800 B in the profile"
    assert said(profile_of(), num_floats=200) == [inputs]
    assert said(profile_of(parameter_bytes=100)) == [parameters]
    assert said(profile_of(), out=400) == [outputs]
    assert said(profile_of(parameter_bytes=100), num_floats=200, out=400) == [parameters]
    assert said(profile_of(), num_floats=200, out=400) == [inputs]


def test_other_ranks_say_only_what_they_alone_see() -> None:
    assert said(profile_of(), rank=1, num_floats=200) == []
    assert said(profile_of(parameter_bytes=100), rank=1) == []
    assert said(profile_of(), rank=1, out=400) == [
        "the activations after layer 'u1' take 1.60 kB for 2 rows, but 800 B in the profile"
    ]


@pytest.mark.parametrize(
    ("num_floats", "is_different"), [(100, False), (102, False), (103, True), (98, False), (97, True)]
)
def test_small_differences_are_ignored(num_floats: int, is_different: bool) -> None:
    assert TOLERANCE == 0.02
    assert bool(said(profile_of(), num_floats=num_floats)) == is_different
    assert bool(said(profile_of(), out=2 * num_floats)) == is_different
