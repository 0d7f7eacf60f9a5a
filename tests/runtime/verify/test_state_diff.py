"""Differences of states, from figures made by hand."""

import pytest
import torch

from penstock.runtime.verify.state_diff import StateDiff, compare_states


def test_states_of_ranks_and_of_a_single_process() -> None:
    one = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.0, 12.0]), "n": torch.tensor(7)}
    assert compare_states(one, [{"a": one["a"]}, {"b": one["b"], "a": one["a"]}, {"n": one["n"]}]) == StateDiff(
        num_tensors=3, num_equal=3, worst_name="a", worst=0.0, together=0.0, torn=(), missing=()
    )
    other = {**one, "a": torch.tensor([3.0, 4.5]), "b": torch.tensor([0.0, 12.0])}
    found = compare_states(one, [other])
    assert (found.num_tensors, found.num_equal, found.worst_name) == (3, 2, "a")
    assert found.worst == pytest.approx(0.5 / 5)
    assert found.together == pytest.approx(0.5 / (25 + 144 + 49) ** 0.5)
    # The first rank counts; the others must have the same.
    found = compare_states(one, [one, {"a": other["a"]}, {"a": other["a"]}])
    assert (found.num_equal, found.torn, found.together) == (3, ("a",), 0.0)
    assert not found.within(1.0)
    found = compare_states(one, [{"a": one["a"], "x": one["b"]}])
    assert (found.num_tensors, found.missing) == (1, ("b", "n", "x"))
    assert not found.within(1.0)
    # Another type has other bits, and a difference from 0 is not relative.
    found = compare_states(one, [{**one, "a": one["a"].double()}])
    assert (found.num_equal, found.together) == (2, 0.0)
    zero = {"z": torch.zeros(2)}
    found = compare_states(zero, [{"z": torch.tensor([0.0, 1e-30])}])
    assert found.worst == found.together == pytest.approx(1e-30)
    found = compare_states(one, [{**one, "b": torch.tensor([0.0, float("nan")])}])
    assert found.worst_name == "b"
    assert not found.within(1.0)
    assert compare_states({}, [{}]).within(0.0)
