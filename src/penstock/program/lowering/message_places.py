"""Lowering: one pass that adds sends, receives, reductions, optimizer steps and parameter returns.

- A send directly follows the action that produces its payload.
- Receives are in the order of the sends on every link. A receive can be posted when fewer than `receives_ahead`
  messages of its flow are posted and unused: as many as hide the link's latency, and for saved tensors as many as 1F1B
  has in flight. It is posted at the earliest slot at which it, or any later receive on its link, can be posted. Saved
  tensors take far more memory than other messages, so their receives wait until the earlier one is freed, not only
  used, and other receives on the link follow them until either is due: as long before its consumer as the link
  takes for the messages of two micro-batches (`LEAD`). No receive is posted later than any consumer of it or of a later
  message, so posting never causes a cycle of waiting devices.
- If the plan is for an engine that blocks, a receive directly precedes the action that needs it (or an action that
  needs a later message of the link); that of a gradient precedes the recompute. Between two actions, sends precede
  receives, but activations are sent after the gradient that their receiver has made before it needs them.
- A stage's gradients are reduced right after its last weight gradient, but never before a message on a link of the
  ring: a device of the ring could still need that message for its own gradients, and the devices would deadlock. Later
  stages are reduced first on every device, as two rings in different orders would deadlock too. Gradients of parameters
  that stages share are reduced after everything else is sent.
- Optimizer steps come at the end: first those of stages whose weights return to another device, each followed by its
  weight return.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Bools, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, PARAMETERS, SAVED, Costs
from penstock.program.actions import NONE, RECV_KINDS, SEND_KINDS, Kind, collective_kind
from penstock.program.dependencies import passes_from, passes_to
from penstock.program.job_table import JobTable, find_jobs
from penstock.program.lowering.receive_slots import (
    LEAD,
    put_parameters_in_turn,
    receives_ahead,
    slot_before,
    slots_posted,
    slots_wanted,
)
from penstock.program.types import Program, program_from_arrays


class _Block(NamedTuple):
    """Actions to merge: `slot` is the compute action that they precede or follow, `rank` their order there."""

    slot: Ints
    rank: int
    kind: npt.NDArray[np.int8]
    stage: Ints
    microbatch: Ints
    peer: Ints


# Within a slot: receives, sends that wait for these, the compute action itself, its sends, reductions, then what closes
# the iteration.
_RECEIVE, _LATE_SEND, _COMPUTE, _SEND, _REDUCE, _CLOSE = range(6)


def place_messages(program: Program, costs: Costs) -> Program:
    """Add communication and optimizer steps to a compute program, each message as early as buffers permit.

    Args:
        program: A compute program. Every pass must occur once, which `prove` checks.
        costs: The priced plan of the program.

    Returns:
        The lowered program.
    """
    jobs = find_jobs(program, costs)
    # Every device has one slot for each compute action and one at the end.
    slot_of = np.arange(program.num_actions, dtype=np.int64) + program.device_of
    last_slot = program.offsets[1:] + np.arange(len(program.devices), dtype=np.int64)
    closing = _closing(costs, jobs)
    messages = _messages(program, costs, jobs, slot_of, last_slot, closing)
    blocks = [
        _Block(
            slot_of,
            _COMPUTE,
            program.kind,
            program.stage.astype(np.int64),
            program.microbatch.astype(np.int64),
            np.full(program.num_actions, NONE, dtype=np.int64),
        ),
        *messages,
        *_reductions(costs, jobs, slot_of, last_slot, messages),
        *_steps(costs, last_slot, closing),
    ]
    return _merge(program, blocks, int(last_slot[-1]) + 1, last_slot)


def _closing(costs: Costs, jobs: JobTable) -> Ints:
    """The replicas in the order of their optimizer steps: those with a weight return first."""
    last = jobs.weights.max(axis=1)
    travels = np.zeros(costs.num_replicas, dtype=bool)
    flows = costs.flows
    travels[flows.source_replica[flows.what == PARAMETERS]] = True
    return np.lexsort((last, ~travels, costs.backward_device))


def _messages(
    program: Program, costs: Costs, jobs: JobTable, slot_of: Ints, last_slot: Ints, closing: Ints
) -> list[_Block]:
    """The sends and receives of every flow; those of parameters are placed among the steps by `_steps`."""
    flows = costs.flows
    once = np.flatnonzero(flows.what == PARAMETERS)
    every = np.flatnonzero(flows.what != PARAMETERS)
    num = costs.num_microbatches
    flow = np.concatenate([np.repeat(every, num), once])
    if not len(flow):
        return []
    microbatch = np.concatenate([np.tile(np.arange(num), len(every)), np.full(len(once), NONE)])
    what = flows.what[flow]
    source, target = flows.source_replica[flow], flows.target_replica[flow]
    regular = what != PARAMETERS

    producer = passes_from(what[regular], source[regular], costs.num_replicas)
    sent_at = np.empty(len(flow), dtype=np.int64)
    sent_at[regular] = slot_of[jobs.passes[producer, microbatch[regular]]]
    sent_at[~regular] = last_slot[flows.source[flow[~regular]]]

    consumer = passes_to(what[regular], target[regular], costs.recompute[costs.replica_stage])
    needed_at = np.empty(len(flow), dtype=np.int64)
    needed_at[regular] = slot_of[jobs.passes[consumer, microbatch[regular]]]
    needed_at[~regular] = last_slot[flows.target[flow[~regular]]]
    blocks = not costs.messages.is_overlapped
    if blocks:
        again = (what == GRADIENT) & costs.recompute[costs.replica_stage[target]]
        needed_at[again] = np.minimum(needed_at[again], slot_of[jobs.recompute[target[again], microbatch[again]]])
    is_saved = what == SAVED
    used_up_at = needed_at.copy()
    used_up_at[is_saved] = slot_of[jobs.weights[target[is_saved], microbatch[is_saved]]]

    # In the order of the sends on every link.
    turn = np.empty(costs.num_replicas, dtype=np.int64)
    turn[closing] = np.arange(costs.num_replicas)
    link = flows.source * len(program.devices) + flows.target
    ends = np.searchsorted(sorted(set(link.tolist())), link)
    link_of = ends[flow]
    order = np.lexsort((np.where(regular, flow, turn[source]), sent_at, link_of))
    first_slot = program.offsets[:-1] + np.arange(len(program.devices))
    earliest = np.where(regular, first_slot[flows.target[flow]], 0)
    last_forward = jobs.forward.max(axis=1)
    # Returned weights must not arrive while the old ones are still in use.
    earliest[~regular] = slot_of[last_forward[target[~regular]]] + 1
    posted = np.empty(len(flow), dtype=np.int64)
    link_s = LEAD * np.bincount(ends, np.where(flows.what == PARAMETERS, 0.0, costs.delay_s))
    due = np.maximum(earliest, slot_before(needed_at, link_s[link_of], program, costs, jobs, slot_of))
    ahead = receives_ahead(costs)
    wanted = slots_wanted(flow[order], needed_at[order], earliest[order], ahead)
    later = np.minimum(due[order], slots_wanted(flow[order], used_up_at[order], earliest[order], ahead))
    wanted = np.where(is_saved[order], np.maximum(wanted, later), wanted)
    put_parameters_in_turn(wanted, link_of[order], np.flatnonzero(~regular[order]))
    if blocks:
        wanted = due = needed_at[order]
        put_parameters_in_turn(wanted, link_of[order], np.flatnonzero(~regular[order]))
        posted[order] = slots_posted(wanted, due, needed_at[order], what[order], link_of[order])
    else:
        posted[order] = slots_posted(wanted, due[order], needed_at[order], what[order], link_of[order])

    order_out = order[np.argsort(sent_at[order], kind="stable")]
    order_out = order_out[regular[order_out]]
    order_in = order[np.argsort(posted[order], kind="stable")]
    late = np.zeros(len(flow), dtype=np.bool_)
    if blocks:
        both = _Ends(what, flows.source[flow], flows.target[flow])
        late = _sent_after_gradients(both, sent_at, posted, needed_at)
    stage_out, stage_in = costs.replica_stage[source], costs.replica_stage[target]
    send_kinds, recv_kinds = np.array(SEND_KINDS, dtype=np.int8), np.array(RECV_KINDS, dtype=np.int8)

    def sends(rows: Ints, rank: int) -> _Block:
        slots = sent_at[rows] + (rank == _LATE_SEND)
        return _Block(slots, rank, send_kinds[what[rows]], stage_out[rows], microbatch[rows], flows.target[flow[rows]])

    return [
        _Block(
            posted[order_in],
            _RECEIVE,
            recv_kinds[what[order_in]],
            stage_in[order_in],
            microbatch[order_in],
            flows.source[flow[order_in]],
        ),
        sends(order_out[late[order_out]], _LATE_SEND),
        sends(order_out[~late[order_out]], _SEND),
    ]


class _Ends(NamedTuple):
    """Over messages: the content, and the devices at both ends."""

    what: Ints
    source: Ints
    target: Ints


def _sent_after_gradients(ends: _Ends, sent_at: Ints, posted: Ints, needed_at: Ints) -> Bools:
    """Which activations are sent only when the sender has received a gradient for its next action.

    Their receiver has made the gradient before it needs them.
    """
    num_devices = int(max(ends.source.max(), ends.target.max())) + 1
    gradients = np.flatnonzero(ends.what == GRADIENT)
    gradients = gradients[np.lexsort((sent_at[gradients], ends.source[gradients], posted[gradients]))]
    keys = posted[gradients] * num_devices + ends.source[gradients]
    wanted = (sent_at + 1) * num_devices + ends.target
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    if not len(keys):
        return np.zeros(len(sent_at), dtype=np.bool_)
    is_met = (keys[at] == wanted) & (sent_at[gradients[at]] < needed_at)
    return np.asarray((ends.what == ACTIVATION) & is_met)


def _reductions(costs: Costs, jobs: JobTable, slot_of: Ints, last_slot: Ints, messages: list[_Block]) -> list[_Block]:
    last = jobs.weights.max(axis=1)
    last_sent = np.full((costs.num_devices, costs.num_devices), NONE, dtype=np.int64)
    for block in messages:
        if block.rank in (_LATE_SEND, _SEND):
            np.maximum.at(last_sent, (np.searchsorted(last_slot, block.slot), block.peer), block.slot)
    free = np.zeros(costs.num_devices, dtype=np.int64)
    rows: list[tuple[int, int, int]] = []
    for reduction in sorted(costs.reductions, key=lambda item: (item.is_tie, -item.number)):
        kind = collective_kind(is_tie=reduction.is_tie, is_gather=False)
        done = last_slot.copy()
        if not reduction.is_tie:
            replicas = costs.replicas(reduction.number)
            done[costs.backward_device[replicas]] = slot_of[last[replicas]]
        for device, target in reduction.ring.links:
            free[device] = max(free[device], done[device], last_sent[device, target])
            rows.append((int(free[device]), int(kind), reduction.number))
    if not rows:
        return []
    # Stable: within a slot they stay in the order above, which is the same for all devices.
    table = np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int64)
    nothing = np.full(len(table), NONE, dtype=np.int64)
    return [_Block(table[:, 0], _REDUCE, table[:, 1].astype(np.int8), table[:, 2], nothing, nothing)]


def _steps(costs: Costs, last_slot: Ints, closing: Ints) -> list[_Block]:
    flows = costs.flows
    returns = {
        int(flows.source_replica[flow]): int(flows.target[flow]) for flow in np.flatnonzero(flows.what == PARAMETERS)
    }
    rows: list[tuple[int, int, int, int]] = []
    for replica in closing.tolist():
        slot, stage = int(last_slot[costs.backward_device[replica]]), int(costs.replica_stage[replica])
        rows.append((slot, Kind.STEP, stage, NONE))
        if replica in returns:
            rows.append((slot, Kind.SEND_P, stage, returns[replica]))
    # All devices issue the all-gathers in one order, after their steps.
    for gather in reversed(costs.gathers):
        rows += [(int(last_slot[device]), Kind.GATHER_P, gather.number, NONE) for device in gather.ring.devices]
    table = np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int64)
    nothing = np.full(len(table), NONE, dtype=np.int64)
    return [_Block(table[:, 0], _CLOSE, table[:, 1].astype(np.int8), table[:, 2], nothing, table[:, 3])]


def _merge(program: Program, blocks: list[_Block], num_slots: int, last_slot: Ints) -> Program:
    """All blocks in one program: by slot, within a slot by rank, within a block in its own order (sorted by slot)."""
    counts = np.stack([np.bincount(block.slot, minlength=num_slots) for block in blocks])
    ranks = np.argsort([block.rank for block in blocks], kind="stable")
    totals = counts.sum(axis=0)
    slot_begin = np.concatenate([[0], np.cumsum(totals)])
    size = int(slot_begin[-1])
    kind = np.empty(size, dtype=np.int8)
    stage, microbatch, peer = (np.empty(size, dtype=np.int32) for _ in range(3))
    begin = slot_begin[:-1].copy()
    for number in ranks.tolist():
        block = blocks[number]
        within = np.arange(len(block.slot)) - np.concatenate([[0], np.cumsum(counts[number])])[block.slot]
        at = begin[block.slot] + within
        kind[at], stage[at], microbatch[at], peer[at] = block.kind, block.stage, block.microbatch, block.peer
        begin += counts[number]
    ends = slot_begin[last_slot + 1]
    per_device = np.diff(np.concatenate([[0], ends]))
    return program_from_arrays(program.plan, program.devices, per_device, kind, stage, microbatch, peer)


assert tuple(range(4)) == (ACTIVATION, GRADIENT, SAVED, PARAMETERS), "SEND_KINDS and RECV_KINDS are in this order"
