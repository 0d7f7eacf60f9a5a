"""The sends and receives of a program: which part of a payload goes to which peer."""

from functools import partial

from penstock.program import Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.messages.routing import Message, Routing
from penstock.runtime.transport import PendingReceive, Transport

SENT = {Kind.SEND_F: Message.ACTIVATIONS, Kind.SEND_B: Message.GRADIENTS, Kind.SEND_S: Message.SAVED_TENSORS}
RECEIVED = {Kind.RECV_F: Message.ACTIVATIONS, Kind.RECV_B: Message.GRADIENTS, Kind.RECV_S: Message.SAVED_TENSORS}
_SOURCE = {Message.ACTIVATIONS: -1, Message.GRADIENTS: 1, Message.SAVED_TENSORS: 0}
"""The stage that produces a message, relative to the stage that receives it."""


def send(routing: Routing, transport: Transport, iteration: Iteration, action: Action) -> None:
    """Start a send, if the peer has some of the rows."""
    message, stage, microbatch = SENT[action.kind], action.stage, action.microbatch
    peer = routing.rank_of[action.peer]
    peer_rows = routing.peer_rows(iteration, action, peer)
    own_rows = routing.own_rows(iteration, stage, microbatch, backward=action.kind == Kind.SEND_B)
    if peer_rows is None or not own_rows.common(peer_rows).num:
        return
    packed = iteration.take((message, stage, microbatch), peer_rows)
    describe = partial(routing.describe, action, iteration.step)
    tag = iteration.first_tag + routing.tag(message, stage, microbatch)
    transport.send(packed, peer, tag, iteration.signature, describe)


def receive(routing: Routing, transport: Transport, iteration: Iteration, action: Action) -> PendingReceive | None:
    """Post a receive, if the peer has some of the rows."""
    message, stage, microbatch = RECEIVED[action.kind], action.stage, action.microbatch
    peer = routing.rank_of[action.peer]
    peer_rows = routing.peer_rows(iteration, action, peer)
    own_rows = routing.own_rows(iteration, stage, microbatch, backward=action.kind != Kind.RECV_F)
    if peer_rows is None or not own_rows.common(peer_rows).num:
        return None
    describe = partial(routing.describe, action, iteration.step)
    tag = iteration.first_tag + routing.tag(message, stage + _SOURCE[message], microbatch)
    pending = transport.irecv(peer, tag, iteration.signature, describe)
    iteration.pending[message, stage, microbatch, peer] = pending
    return pending
