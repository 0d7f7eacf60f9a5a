"""Actions, written as `torch.distributed.pipelining` writes them, with the peer after an @.

3F1  3I1  3W1  3B1      forward, input gradient, weight gradient, fused backward of stage 3, micro-batch 1
3R1                     recompute: the forward again, before the backward
3SEND_F1@d4  4RECV_F1@d3    activations of stage 3, sent to d4 and received by stage 4 from d3
3SEND_B1@d1  2RECV_B1@d3    the gradient of stage 3's input, sent to stage 2
3SEND_S1@d7  3RECV_S1@d2    saved tensors, sent to the device that runs the backward
3REDUCE_GRAD            all-reduce of a replicated stage's gradients over its group
                        (with a sharded optimizer, reduce-scatter)
0REDUCE_TIE             all-reduce of the gradients of tied parameters (tie 0) over all devices that hold them
3STEP                   the optimizer steps stage 3
3SEND_P@d2   3RECV_P@d7     updated parameters, sent back to the device that runs the forward
3GATHER_P               all-gather of a replicated stage's updated parameters, with a sharded optimizer
"""

import re
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from penstock.arrays import Bools, Int8s
from penstock.errors import InputError


class Kind(IntEnum):
    """Kind of an action.

    The order of the values is part of the packed formats; code uses the predicates below instead of comparing values.
    """

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
    GATHER_P = 16

    @property
    def is_pass(self) -> bool:
        """Whether it is a pass of one micro-batch through one stage: F, R, I, W or B."""
        return self <= Kind.B

    @property
    def is_compute(self) -> bool:
        """Whether it occupies its device: a pass or an optimizer step. The others only start a transfer."""
        return self <= Kind.STEP

    @property
    def is_send(self) -> bool:
        """Whether it sends to another device."""
        return Kind.SEND_F <= self <= Kind.SEND_P

    @property
    def is_recv(self) -> bool:
        """Whether it posts a receive from another device."""
        return Kind.RECV_F <= self <= Kind.RECV_P

    @property
    def is_reduction(self) -> bool:
        """Whether it sums gradients over several devices."""
        return Kind.REDUCE_GRAD <= self <= Kind.REDUCE_TIE

    @property
    def is_collective(self) -> bool:
        """Whether all devices of a ring take part: a reduction of gradients, or an all-gather of parameters."""
        return self >= Kind.REDUCE_GRAD


def is_pass(kind: Int8s) -> Bools:
    """Which kinds of an array are passes; see `Kind.is_pass`."""
    return np.asarray(kind <= int(Kind.B))


def is_compute(kind: Int8s) -> Bools:
    """Which kinds of an array occupy their device; see `Kind.is_compute`."""
    return np.asarray(kind <= int(Kind.STEP))


def is_send(kind: Int8s) -> Bools:
    """Which kinds of an array are sends."""
    return np.asarray((kind >= int(Kind.SEND_F)) & (kind <= int(Kind.SEND_P)))


def is_recv(kind: Int8s) -> Bools:
    """Which kinds of an array are receives."""
    return np.asarray((kind >= int(Kind.RECV_F)) & (kind <= int(Kind.RECV_P)))


def is_reduction(kind: Int8s) -> Bools:
    """Which kinds of an array are reductions of gradients."""
    return np.asarray((kind >= int(Kind.REDUCE_GRAD)) & (kind <= int(Kind.REDUCE_TIE)))


def is_collective(kind: Int8s) -> Bools:
    """Which kinds of an array are reductions or all-gathers; see `Kind.is_collective`."""
    return np.asarray(kind >= int(Kind.REDUCE_GRAD))


PASS_KINDS = (Kind.F, Kind.R, Kind.I, Kind.W, Kind.B)
"""Kinds of a compute program: passes of one micro-batch through one stage. Lowering adds the others."""
COMPUTE_KINDS = (*PASS_KINDS, Kind.STEP)
"""Kinds that occupy their device."""
SEND_KINDS = (Kind.SEND_F, Kind.SEND_B, Kind.SEND_S, Kind.SEND_P)
RECV_KINDS = (Kind.RECV_F, Kind.RECV_B, Kind.RECV_S, Kind.RECV_P)
COLLECTIVE_KINDS = (Kind.REDUCE_GRAD, Kind.REDUCE_TIE, Kind.GATHER_P)
"""Kinds that all devices of a ring issue."""
ONCE_KINDS = (Kind.STEP, Kind.SEND_P, Kind.RECV_P, *COLLECTIVE_KINDS)
"""Kinds that occur once per iteration, not once per micro-batch."""

NONE = -1
"""The value for no micro-batch and no peer."""


def collective_kind(*, is_tie: bool, is_gather: bool) -> Kind:
    """The kind of the actions that issue a collective."""
    if is_gather:
        return Kind.GATHER_P
    return Kind.REDUCE_TIE if is_tie else Kind.REDUCE_GRAD


class Action(NamedTuple):
    """An operation of one device for one stage and one micro-batch. `peer` is the other end of a send or receive."""

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
    """Parse an action.

    Args:
        text: An action as it is printed.
        where: The file and key, for the error.

    Raises:
        InputError: The text is not an action.

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
        problem = "takes no micro-batch" if kind in ONCE_KINDS else "requires a micro-batch"
        raise InputError(f"{text[:60]!r}: {kind.name} {problem}", where=where)
    needs_peer = kind in SEND_KINDS or kind in RECV_KINDS
    if needs_peer != (match[4] is not None):
        problem = "requires a peer device, such as @d4" if needs_peer else "takes no peer"
        raise InputError(f"{text[:60]!r}: {kind.name} {problem}", where=where)
    return Action(kind, int(match[1]), int(match[3]) if match[3] else NONE, match[4] or "")
