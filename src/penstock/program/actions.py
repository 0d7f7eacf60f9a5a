"""Actions: one job of one stage, as people and files write it (torch's notation, with the peer behind an @).

3F1  3I1  3W1  3B1      forward, input gradient, weight gradient, both gradients of stage 3, micro-batch 1
3R1                     recomputation of the forward before its backward
3SEND_F1@d4  4RECV_F1@d3    stage 3's activations leave for d4, and arrive at stage 4 from d3
3SEND_B1@d1  2RECV_B1@d3    the gradient of stage 3's input leaves for stage 2
3SEND_S1@d7  3RECV_S1@d2    what the forward saved goes to the device that runs the backward
3REDUCE_GRAD            gradients of a replicated stage are summed over its group
0REDUCE_TIE             gradients of shared parameters (tie 0) are summed over all that hold them
3STEP                   the optimizer steps stage 3
3SEND_P@d2   3RECV_P@d7     fresh parameters go back to the device that runs the forward
"""

import re
from enum import IntEnum
from typing import NamedTuple

from penstock.errors import InputError


class Kind(IntEnum):
    """What an action does. Up to STEP they keep their device busy; the others are only set going."""

    F = 0
    R = 1
    I = 2  # noqa: E741
    W = 3
    B = 4
    STEP = 5
    SEND_F = 6
    SEND_B = 7
    SEND_S = 8
    SEND_P = 9
    RECV_F = 10
    RECV_B = 11
    RECV_S = 12
    RECV_P = 13
    REDUCE_GRAD = 14
    REDUCE_TIE = 15


SEND_KINDS = (Kind.SEND_F, Kind.SEND_B, Kind.SEND_S, Kind.SEND_P)
RECV_KINDS = (Kind.RECV_F, Kind.RECV_B, Kind.RECV_S, Kind.RECV_P)
ONCE_KINDS = (Kind.STEP, Kind.SEND_P, Kind.RECV_P, Kind.REDUCE_GRAD, Kind.REDUCE_TIE)
"""Kinds that happen once an iteration, not once a micro-batch."""

NONE = -1
"""Stands for no micro-batch and no peer."""


class Action(NamedTuple):
    """One job. `peer` is the name of the device at the other end of a send or receive."""

    kind: Kind
    stage: int
    microbatch: int = NONE
    peer: str = ""

    def __str__(self) -> str:
        microbatch = "" if self.microbatch == NONE else str(self.microbatch)
        peer = f"@{self.peer}" if self.peer else ""
        return f"{self.stage}{self.kind.name}{microbatch}{peer}"


_PATTERN = re.compile(r"(\d{1,9})([A-Z](?:[A-Z_]*[A-Z])?)(\d{0,9})(?:@(.+))?\Z", re.DOTALL | re.ASCII)


def parse_action(text: str, *, where: str = "") -> Action:
    """An action from its text.

    >>> parse_action("3SEND_F1@d4")
    Action(kind=<Kind.SEND_F: 6>, stage=3, microbatch=1, peer='d4')
    >>> str(parse_action("3STEP"))
    '3STEP'
    """
    match = _PATTERN.match(text)
    if match is None or match[2] not in Kind.__members__:
        raise InputError(
            f"{text[:60]!r} is not an action", where=where, hint="Actions look like 3F1, 3B1, 3SEND_F1@d4."
        )
    kind = Kind[match[2]]
    if (kind in ONCE_KINDS) != (match[3] == ""):
        problem = "takes no micro-batch" if kind in ONCE_KINDS else "needs a micro-batch"
        raise InputError(f"{text[:60]!r}: {kind.name} {problem}", where=where)
    needs_peer = kind in SEND_KINDS or kind in RECV_KINDS
    if needs_peer != (match[4] is not None):
        problem = "needs the device at its other end, such as @d4" if needs_peer else "takes no peer"
        raise InputError(f"{text[:60]!r}: {kind.name} {problem}", where=where)
    return Action(kind, int(match[1]), int(match[3]) if match[3] else NONE, match[4] or "")
