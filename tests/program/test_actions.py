"""Actions as text: there and back, and what is not an action."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.program.actions import NONE, ONCE_KINDS, RECV_KINDS, SEND_KINDS, Action, Kind, parse_action
from tests.support.reach import reach, reaches

NUMBERS = st.integers(0, 999_999_999)


@st.composite
def actions(draw: st.DrawFn) -> Action:
    kind = draw(st.sampled_from(list(Kind)))
    microbatch = NONE if kind in ONCE_KINDS else draw(NUMBERS)
    peer = draw(st.text(min_size=1)) if kind in SEND_KINDS + RECV_KINDS else ""
    return Action(kind, draw(NUMBERS), microbatch, peer)


@st.composite
def near_actions(draw: st.DrawFn) -> str:
    """The text of an action, as it is or with one part exchanged."""
    stage, rest = re.fullmatch("([0-9]+)(.*)", str(draw(actions())), re.DOTALL).groups()  # type: ignore[union-attr]
    kind, rest = re.fullmatch("([A-Z_]+)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    parts = [stage, kind, rest]
    exchanged = draw(st.sampled_from([None, None, 0, 1, 2]))
    if exchanged is not None:
        others = [*(kind.name for kind in Kind), "X", "f", "", "0", "007", "-1", "7@d0", "@d0", "@", " "]
        parts[exchanged] = draw(st.sampled_from(others))
    return "".join(parts)


def without_leading_zeros(text: str) -> str:
    """An action's text with its stage and micro-batch as they are printed."""
    head, at, peer = text.partition("@")
    return re.sub("[0-9]+", lambda number: str(int(number[0])), head) + at + peer


@reaches(message=0.1, compute=0.1, named=0.05)
@given(actions())
@example(Action(Kind.SEND_F, 3, 1, "host/gpu@0\n@"))
def test_there_and_back(action: Action) -> None:
    assert parse_action(str(action)) == action
    reach("message", action.peer)
    reach("compute", action.kind.is_compute)
    reach("named", not action.peer.isalnum() and action.peer)


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
        ("3F", "F requires a micro-batch"),
        ("3STEP1", "STEP takes no micro-batch"),
        ("3SEND_P1@d2", "SEND_P takes no micro-batch"),
        ("3SEND_F1", "SEND_F requires a peer device, such as @d4"),
        ("3SEND_F1@", "is not an action"),
        ("3F1@d4", "F takes no peer"),
        ("3REDUCE_GRAD@d4", "REDUCE_GRAD takes no peer"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_action(text, where="here")
    assert caught.value.where == "here"


@reaches(parsed=0.1, refused=0.1)
@given(st.text() | near_actions())
@example("0" * 1000)
@example("3F1")
def test_any_text(text: str) -> None:
    try:
        action = parse_action(text)
    except InputError:
        reach("refused")
        return
    reach("parsed")
    assert parse_action(str(action)) == action
    assert without_leading_zeros(text) == str(action)


def test_order_of_kinds() -> None:
    # Elsewhere kinds are compared: compute up to STEP, then sends and receives, each in the order F B S P,
    # and collectives.
    names = "F R I W B STEP SEND_F SEND_B SEND_S SEND_P RECV_F RECV_B RECV_S RECV_P REDUCE_GRAD REDUCE_TIE GATHER_P"
    assert " ".join(kind.name for kind in Kind) == names
    assert [int(kind) for kind in Kind] == list(range(17))
