"""Messages of a program: which send pairs with which receive, and which action consumes the payload."""

import numpy as np

from penstock.arrays import Ints
from penstock.program import Kind, Program, is_pass, is_recv, is_send

# The payload of a receive goes to the first of these kinds that its device has for the stage and micro-batch. Received
# parameters are used in the next iteration only.
_CONSUMERS = {
    int(Kind.RECV_F): (Kind.F,),
    int(Kind.RECV_B): (Kind.I, Kind.B),
    int(Kind.RECV_S): (Kind.R, Kind.I, Kind.B),
}


def sends_and_consumers(program: Program) -> list[tuple[int, int]]:
    """Pairs of a send and the compute action that consumes its payload, in the order of the sends."""
    device, kind = program.device_of.tolist(), program.kind.tolist()
    stage, microbatch = program.stage.tolist(), program.microbatch.tolist()
    passes = {
        (device[action], kind[action], stage[action], microbatch[action]): action
        for action in np.flatnonzero(is_pass(program.kind))[::-1].tolist()
    }
    pairs = []
    for send, receive in messages(program):
        for consumer_kind in _CONSUMERS.get(kind[receive], ()):
            consumer = passes.get((device[receive], int(consumer_kind), stage[receive], microbatch[receive]))
            if consumer is not None:
                pairs.append((send, consumer))
                break
    return pairs


def messages(program: Program) -> list[tuple[int, int]]:
    """Pair the sends of a program with its receives.

    On every link the first send pairs with the first receive, the second with the second, and so on. In a proved
    program every send has a receive of its kind. In a damaged file, sends without one are left out.

    Args:
        program: A lowered program.

    Returns:
        Pairs (send, receive) of action indices, in the order of the sends.
    """
    device, kind = program.device_of.astype(np.int64), program.kind
    send = np.flatnonzero(is_send(kind))
    receive = np.flatnonzero(is_recv(kind))
    link_out = device[send] * len(program.devices) + program.peer[send]
    link_in = program.peer[receive].astype(np.int64) * len(program.devices) + device[receive]
    receive_at = dict(zip(zip(link_in.tolist(), _ranks(link_in), strict=True), receive.tolist(), strict=True))
    pairs = []
    for action, key in zip(send.tolist(), zip(link_out.tolist(), _ranks(link_out), strict=True), strict=True):
        other = receive_at.get(key)
        if other is not None and kind[other] - Kind.RECV_F == kind[action] - Kind.SEND_F:
            pairs.append((action, other))
    return pairs


def _ranks(link: Ints) -> list[int]:
    """For each entry the number of earlier entries on the same link."""
    order = np.argsort(link, kind="stable")
    first = np.searchsorted(link[order], link[order])
    ranks = np.empty(len(link), dtype=np.int64)
    ranks[order] = np.arange(len(link)) - first
    return [int(rank) for rank in ranks.tolist()]
