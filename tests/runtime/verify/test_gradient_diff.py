"""Ranks that follow one process: what counts as the same gradient, as rounding, and as wrong."""

import torch
from torch import nn

from penstock.runtime.verify.gradient_diff import ReferenceGradients, compare_gradients, copy_gradients


def parameter(*grad: float) -> nn.Parameter:
    made = nn.Parameter(torch.zeros(len(grad)))
    made.grad = torch.tensor(grad) if grad else None
    return made


def test_gradients_are_compared_and_then_taken() -> None:
    following = ReferenceGradients([{"a": torch.tensor([3.0, 4.0]), "b": None}, {"a": None, "b": None}])
    held = {"a": parameter(3.0, 7.0), "b": parameter()}
    following.replace(held)
    assert following.errors == [{"a": (3.0, 5.0), "b": (0.0, 0.0)}]
    assert held["a"].grad is not None
    assert held["a"].grad.tolist() == [3.0, 4.0]
    assert held["b"].grad is None
    following.replace(held)
    assert following.errors[1] == {"a": (5.0, 0.0), "b": (0.0, 0.0)}
    assert held["a"].grad is None


def test_copies_stay_as_they_are() -> None:
    held = {"a": parameter(1.0)}
    kept = copy_gradients(held)
    assert held["a"].grad is not None
    held["a"].grad += 1
    assert kept["a"] is not None
    assert kept["a"].item() == 1.0


def test_what_is_rounding_does_not_count_by_itself() -> None:
    # All together are 5: a bias of 1e-6 of that has no digits of its own, and is off by as much as it is.
    found = compare_gradients([[{"weight": (1e-6, 4.0), "bias": (1e-6, 1e-6)}], [{"other": (0.0, 3.0)}]])
    assert found.rounding == ("bias",)
    assert found.wrong == ()
    assert found.together == (2e-12) ** 0.5 / (25 + 1e-12) ** 0.5
    assert found.within(1e-6)


def test_a_small_gradient_that_is_wrong_is_not_hidden_by_large_ones() -> None:
    # Half of it is missing: that is 7.5e-7 of all together, which would pass.
    found = compare_gradients([[{"weight": (0.0, 2.0), "small": (1.5e-6, 3e-6)}, {"weight": (0.0, 1.0)}]])
    assert found.together < 1e-6
    assert (found.rounding, found.wrong) == ((), ("small",))
    assert not found.within(1e-6)


def test_whichever_rank_is_wrong() -> None:
    right, wrong = {"weight": (0.0, 2.0)}, {"weight": (1.0, 2.0)}
    for ranks in ([[right], [wrong]], [[wrong], [right]]):
        found = compare_gradients(ranks)
        assert (found.together, found.wrong) == (0.5, ("weight",))


def test_what_is_not_a_number_is_wrong() -> None:
    nothing = float("nan")
    assert compare_gradients([[{"weight": (nothing, 2.0)}]]).wrong == ("weight",)
