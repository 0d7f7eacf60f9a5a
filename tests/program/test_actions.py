"""Actions as text: there and back, and what is not an action."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.program.actions import NONE, ONCE_KINDS, RECV_KINDS, SEND_KINDS, Action, Kind, parse_action

NUMBERS = st.integers(0, 999_999_999)


@st.composite
def actions(draw: st.DrawFn) -> Action:
    kind = draw(st.sampled_from(list(Kind)))
    microbatch = NONE if kind in ONCE_KINDS else draw(NUMBERS)
    peer = draw(st.text(min_size=1)) if kind in SEND_KINDS + RECV_KINDS else ""
    return Action(kind, draw(NUMBERS), microbatch, peer)


@given(actions())
@example(Action(Kind.SEND_F, 3, 1, "host/gpu@0\n@"))
def test_there_and_back(action: Action) -> None:
    assert parse_action(str(action)) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("3F1", Action(Kind.F, 3, 1)),
        ("3I1", Action(Kind.I, 3, 1)),
        ("3W1", Action(Kind.W, 3, 1)),
        ("3B1", Action(Kind.B, 3, 1)),
        ("3R1", Action(Kind.R, 3, 1)),
        ("3SEND_F1@d4", Action(Kind.SEND_F, 3, 1, "d4")),
        ("4RECV_F1@d3", Action(Kind.RECV_F, 4, 1, "d3")),
        ("3SEND_S1@d7", Action(Kind.SEND_S, 3, 1, "d7")),
        ("3SEND_P@d2", Action(Kind.SEND_P, 3, NONE, "d2")),
        ("3RECV_P@d7", Action(Kind.RECV_P, 3, NONE, "d7")),
        ("3REDUCE_GRAD", Action(Kind.REDUCE_GRAD, 3)),
        ("0REDUCE_TIE", Action(Kind.REDUCE_TIE, 0)),
        ("12STEP", Action(Kind.STEP, 12)),
    ],
)
def test_as_written(text: str, action: Action) -> None:
    assert parse_action(text) == action
    assert str(action) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not an action"),
        ("F1", "is not an action"),
        ("3X1", "is not an action"),
        ("3f1", "is not an action"),
        ("-1F0", "is not an action"),
        ("3 F1", "is not an action"),
        ("3F1 ", "is not an action"),
        ("3F1\n", "is not an action"),
        ("1234567890F1", "is not an action"),
        ("3F1234567890", "is not an action"),
        ("3SEND_1@d4", "is not an action"),
        ("3_F1", "is not an action"),
        ("\u0663F1", "is not an action"),  # an Arabic three: a digit, but not one of ours
        ("3F", "F needs a micro-batch"),
        ("3STEP1", "STEP takes no micro-batch"),
        ("3SEND_P1@d2", "SEND_P takes no micro-batch"),
        ("3SEND_F1", "SEND_F needs the device at its other end"),
        ("3SEND_F1@", "is not an action"),
        ("3F1@d4", "F takes no peer"),
        ("3REDUCE_GRAD@d4", "REDUCE_GRAD takes no peer"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_action(text, where="here")
    assert caught.value.where == "here"


@given(st.text())
@example("0" * 1000)
def test_any_text(text: str) -> None:
    try:
        action = parse_action(text)
    except InputError:
        return
    assert parse_action(str(action)) == action


def test_order_of_kinds() -> None:
    # Elsewhere kinds are compared: compute up to STEP, then sends, receives and reductions, each in the order F B S P.
    names = "F R I W B STEP SEND_F SEND_B SEND_S SEND_P RECV_F RECV_B RECV_S RECV_P REDUCE_GRAD REDUCE_TIE"
    assert " ".join(kind.name for kind in Kind) == names
    assert [int(kind) for kind in Kind] == list(range(16))
