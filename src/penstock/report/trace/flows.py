"""Who uses what a send brings: the arrows of a trace."""

import numpy as np

from penstock.arrays import Ints
from penstock.program import Kind, Program

# What comes with a receive is used by the first of these that the device has for its stage and micro-batch. Fresh
# parameters are used in the next iteration only.
_USERS = {
    int(Kind.RECV_F): (Kind.F,),
    int(Kind.RECV_B): (Kind.I, Kind.B),
    int(Kind.RECV_S): (Kind.R, Kind.I, Kind.B),
}


def sends_and_users(program: Program) -> list[tuple[int, int]]:
    """Pairs of a send and the compute action at its other end that takes what it brings, in the order of the sends."""
    device, kind = program.device_of.tolist(), program.kind.tolist()
    stage, microbatch = program.stage.tolist(), program.microbatch.tolist()
    job_of = {
        (device[place], kind[place], stage[place], microbatch[place]): place
        for place in np.flatnonzero(program.kind <= Kind.B)[::-1].tolist()
    }
    found = []
    for send, receive in messages(program):
        for user in _USERS.get(kind[receive], ()):
            place = job_of.get((device[receive], int(user), stage[receive], microbatch[receive]))
            if place is not None:
                found.append((send, place))
                break
    return found


def messages(program: Program) -> list[tuple[int, int]]:
    """Sends with their receives: on every link the first with the first, the second with the second, and so on.

    In a program that was proved all of them match. In a file that was written by hand, what does not is left out.
    """
    device, kind = program.device_of.astype(np.int64), program.kind
    send = np.flatnonzero((kind >= Kind.SEND_F) & (kind <= Kind.SEND_P))
    receive = np.flatnonzero((kind >= Kind.RECV_F) & (kind <= Kind.RECV_P))
    link_out = device[send] * len(program.devices) + program.peer[send]
    link_in = program.peer[receive].astype(np.int64) * len(program.devices) + device[receive]
    incoming = dict(zip(zip(link_in.tolist(), _turns(link_in), strict=True), receive.tolist(), strict=True))
    found = []
    for place, key in zip(send.tolist(), zip(link_out.tolist(), _turns(link_out), strict=True), strict=True):
        other = incoming.get(key)
        if other is not None and kind[other] - Kind.RECV_F == kind[place] - Kind.SEND_F:
            found.append((place, other))
    return found


def _turns(link: Ints) -> list[int]:
    """For each entry how many of the same link come before it."""
    order = np.argsort(link, kind="stable")
    first = np.searchsorted(link[order], link[order])
    turns = np.empty(len(link), dtype=np.int64)
    turns[order] = np.arange(len(link)) - first
    return [int(turn) for turn in turns.tolist()]
