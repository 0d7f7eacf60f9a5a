"""The messages of a program: which send pairs with which receive, and which pass consumes the payload."""

import numpy as np

from penstock.arrays import Ints
from penstock.program.actions import NONE, Kind, is_recv, is_send
from penstock.program.dependencies.passes import passes_to
from penstock.program.job_table import JobTable, find_jobs
from penstock.program.placement import Placement, find_placement
from penstock.program.types import Program


def match_messages(program: Program) -> tuple[Ints, Ints]:
    """Pair the sends of a program with its receives.

    On every link the first send pairs with the first receive, the second with the second, and so on. In a proved
    program every send has a receive of its kind. In a damaged file, sends without one are left out.

    Args:
        program: A lowered program.

    Returns:
        The indices of the sends, in their order in the program, and those of their receives.
    """
    device, peer = program.device_of.astype(np.int64), program.peer.astype(np.int64)
    num_devices = len(program.devices)
    send = np.flatnonzero(is_send(program.kind))
    receive = np.flatnonzero(is_recv(program.kind))
    link_out = device[send] * num_devices + peer[send]
    link_in = peer[receive] * num_devices + device[receive]
    by_link_out, by_link_in = np.argsort(link_out, kind="stable"), np.argsort(link_in, kind="stable")
    link_out, link_in = link_out[by_link_out], link_in[by_link_in]
    matched = np.full(len(send), NONE, dtype=np.int64)
    if np.array_equal(link_out, link_in):
        matched[by_link_out] = receive[by_link_in]
    else:
        # Each takes the receive with its own rank on the link.
        at = np.searchsorted(link_in, link_out) + np.arange(len(send)) - np.searchsorted(link_out, link_out)
        has_one = at < np.searchsorted(link_in, link_out, side="right")
        matched[by_link_out[has_one]] = receive[by_link_in[at[has_one]]]
    is_whole = (matched != NONE) & (program.kind[matched] - Kind.RECV_F == program.kind[send] - Kind.SEND_F)
    return (send, matched) if is_whole.all() else (send[is_whole], matched[is_whole])


def sends_and_consumers(program: Program) -> tuple[Ints, Ints]:
    """The sends of a program, and the passes that consume their payloads, in the order of the sends.

    Received parameters are used in the next iteration only.
    """
    placement = find_placement(program)
    return find_consumers(program, placement, find_jobs(program, placement))


def find_consumers(program: Program, placement: Placement, jobs: JobTable) -> tuple[Ints, Ints]:
    """The same with the tables of a program at hand."""
    send, receive = match_messages(program)
    what = program.kind[receive].astype(np.int64) - Kind.RECV_F
    consumer = passes_to(what, jobs.replica[receive], placement.recompute[placement.replica_stage])
    known = (consumer != NONE) & (jobs.replica[receive] != NONE) & _is_inside(program, receive)
    action = jobs.passes[consumer[known], program.microbatch[receive[known]]]
    return send[known][action != NONE], action[action != NONE]


def _is_inside(program: Program, actions: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether the plan has the micro-batches of these actions."""
    microbatch = program.microbatch[actions]
    return (microbatch >= 0) & (microbatch < program.plan.num_microbatches)
