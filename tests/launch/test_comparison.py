"""What `penstock check --numerics` says of two runs, from figures made by hand."""

import pytest

from penstock.errors import InputError
from penstock.launch.numerics import MAX_NAMES, TOLERANCE, Comparison, _diff_text, _require_finite, _some
from penstock.launch.runs.events import Stepped
from penstock.launch.training import TrainResult
from penstock.runtime.verify.state_diff import StateDiff


def diff(**changes: object) -> StateDiff:
    plain = {
        "num_tensors": 4,
        "num_equal": 4,
        "worst_name": "w",
        "worst": 0.0,
        "together": 0.0,
        "torn": (),
        "missing": (),
    }
    return StateDiff(**{**plain, **changes})  # type: ignore[arg-type]


def comparison(losses_off: float = 0.0, **states: StateDiff) -> Comparison:
    return Comparison(((1.0, 1.0),), losses_off, states or {"parameters": diff()})


def test_what_counts_as_equal_and_as_agreement() -> None:
    assert comparison().is_equal
    assert comparison().holds
    close = comparison(TOLERANCE, parameters=diff(num_equal=3, together=TOLERANCE))
    assert not close.is_equal
    assert close.holds
    assert not comparison(TOLERANCE / 2).is_equal
    assert not comparison(1.01 * TOLERANCE).holds
    for changes in ({"together": 1.01 * TOLERANCE}, {"torn": ("a",)}, {"missing": ("a",)}, {"together": float("nan")}):
        # Of one kind only.
        assert not comparison(parameters=diff(), buffers=diff(**changes)).holds
        assert not comparison(parameters=diff(**changes), buffers=diff()).holds
    assert not comparison(parameters=diff(), buffers=diff(num_equal=3)).is_equal


def test_the_first_names_are_listed() -> None:
    names = [f"n{number}" for number in range(MAX_NAMES + 2)]
    assert _some(names[:1]) == "n0"
    assert _some(names[:MAX_NAMES]) == "n0, n1, n2"
    assert _some(names) == "n0, n1, n2 and 2 more"


def test_the_text_of_a_difference() -> None:
    assert _diff_text("parameters", diff()) == "parameters: all 4 are bitwise equal"
    text = _diff_text("buffers", diff(num_equal=3, worst=0.25, together=0.125))
    assert text == (
        "buffers: 3 of 4 are bitwise equal; the largest relative difference is 2.5e-01 (w), over all tensors 1.2e-01"
    )
    assert _diff_text("buffers", diff(torn=("a", "b"))).endswith(
        "; ranks hold different values of a; ranks hold different values of b"
    )
    assert _diff_text("buffers", diff(missing=tuple("abcd"))).endswith(
        "; a exists in one of the two runs only; b exists in one of the two runs only; "
        "c exists in one of the two runs only"
    )


def test_a_loss_that_is_not_finite_cannot_be_compared() -> None:
    def result(*losses: float) -> TrainResult:
        return TrainResult(tuple(Stepped(step, loss, 1, 1.0) for step, loss in enumerate(losses)), (), (), False, None)

    _require_finite(result(1.0, -2.0, 0.0))
    with pytest.raises(InputError, match="the loss of a single process is inf at step 1"):
        _require_finite(result(1.0, float("inf"), float("nan")))
