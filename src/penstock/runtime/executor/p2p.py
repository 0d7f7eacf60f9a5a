"""The sends and receives of a program: which part of what was made goes to whom."""

from functools import partial

from penstock.program import Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.routing import Addresses
from penstock.runtime.transport import Mail, Pending

SENT = {Kind.SEND_F: Kind.F, Kind.SEND_B: Kind.B, Kind.SEND_S: Kind.R}
RECEIVED = {Kind.RECV_F: Kind.F, Kind.RECV_B: Kind.B, Kind.RECV_S: Kind.R}
"""What a message carries, by the job that makes or needs it; R stands for what a backward elsewhere needs."""


def send(addresses: Addresses, mail: Mail, iteration: Iteration, action: Action) -> None:
    """Set a send going, if the other end has some of the rows."""
    what, stage, microbatch = SENT[action.kind], action.stage, action.microbatch
    peer = addresses.rank_of[action.peer]
    theirs = addresses.other_end(iteration, action, peer)
    mine = addresses.mine(iteration, stage, microbatch, backward=action.kind == Kind.SEND_B)
    if theirs is None or not mine.common(theirs).num:
        return
    packed = iteration.take((what, stage, microbatch), theirs)
    told = partial(addresses.tell, action, iteration.step)
    tag = iteration.first_tag + addresses.tag(what, stage, microbatch)
    mail.send(packed, peer, tag, iteration.signature, told)


def receive(addresses: Addresses, mail: Mail, iteration: Iteration, action: Action) -> Pending | None:
    """Post a receive, if the other end has some of the rows."""
    what, stage, microbatch = RECEIVED[action.kind], action.stage, action.microbatch
    peer = addresses.rank_of[action.peer]
    theirs = addresses.other_end(iteration, action, peer)
    mine = addresses.mine(iteration, stage, microbatch, backward=action.kind != Kind.RECV_F)
    if theirs is None or not mine.common(theirs).num:
        return None
    source = {Kind.F: stage - 1, Kind.B: stage + 1}.get(what, stage)
    told = partial(addresses.tell, action, iteration.step)
    tag = iteration.first_tag + addresses.tag(what, source, microbatch)
    pending = mail.expect(peer, tag, iteration.signature, told)
    iteration.pending[what, stage, microbatch, peer] = pending
    return pending
