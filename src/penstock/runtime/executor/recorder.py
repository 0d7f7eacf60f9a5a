"""The measured timeline of an iteration, from the spans that every rank records.

Compute actions are measured on their rank. A message starts when both ends have started it. It ends when the receiver
finds it complete, which is when it needs it; if the receiver did not have to wait, the message may have arrived
earlier, and ends with the previous action at the latest. The optimizer step of a rank covers all its stages, and is
attributed to the first of them. Returned and gathered weights count as arrived at once, as nothing waits for them
before the next iteration, unless their spans are given.
"""

import socket
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch.distributed as dist

from penstock.arrays import Floats
from penstock.dist import PeerExchange
from penstock.program import NONE, Kind, is_send
from penstock.program.proof import Proof
from penstock.runtime.executor.protocols import Span
from penstock.timeline import Timeline, build_timeline, compute_before

NO_WAIT_S = 3e-4
"""An action that starts this soon after the previous one did not wait: the runtime itself takes as long."""


def gather_timeline(
    get_proof: Callable[[], Proof],
    devices: Sequence[str],
    spans_s: Sequence[Span],
    stepped_s: Span,
    group: Any,
    exchange: PeerExchange,
) -> Timeline | None:
    """Return the timeline of the last iteration on rank 0, from the spans of all ranks; None elsewhere. Collective.

    Args:
        get_proof: Returns the proved program. Called on rank 0 only.
        devices: Names of the devices in use, by rank.
        spans_s: Spans of this rank's actions. Those of the weight return may be zeros.
        stepped_s: Span of this rank's optimizer step.
        group: The control group.
        exchange: Carries the spans to rank 0.
    """
    dist.barrier(group=group)
    own = (socket.gethostname(), perf_counter(), np.array(spans_s, dtype=np.float64).reshape(-1, 2), stepped_s)
    records = exchange.gather(own, "gathering the timeline", 0.0)
    if not records:
        return None
    return measured_timeline(get_proof(), devices, [_shift_clock(item, records[0]) for item in records])


def _correct_early_arrivals(proof: Proof, start: Floats, end: Floats, ended: Floats) -> None:
    """End messages that their consumer did not wait for with the consumer's previous action.

    Otherwise every message would appear to be the cause of its consumer's start.
    """
    consumers = proof.dependencies.consumers
    transfer = np.repeat(np.arange(len(consumers.begin) - 1), np.diff(consumers.begin))
    before = compute_before(proof.program)[consumers.values]
    is_early = (before != NONE) & (start[consumers.values] - end[before] < NO_WAIT_S)
    np.minimum.at(ended, transfer[is_early], end[before[is_early]])


def _shift_clock(record: Any, first: Any) -> tuple[Floats, Span]:
    """Convert spans to the clock of rank 0. Clocks of other hosts are aligned at the end of the barrier."""
    host, now, spans, stepped = record
    shift = 0.0 if host == first[0] else first[1] - now
    return spans + shift, (stepped[0] + shift, stepped[1] + shift)


def measured_timeline(
    proof: Proof, devices: Sequence[str], ranks: Sequence[tuple[Sequence[Span] | Floats, Span]]
) -> Timeline:
    """Return the timeline of a program.

    Args:
        proof: The proved program.
        devices: Names of the devices in use, by rank.
        ranks: By rank: spans of its actions, and of its optimizer step. Ranks without a device are ignored.
    """
    program, dependencies = proof.program, proof.dependencies
    start, end = np.zeros(program.num_actions), np.zeros(program.num_actions)
    for name, (spans, stepped) in zip(devices, ranks, strict=False):
        if not name:
            continue
        number = program.devices.index(name)
        actions = np.arange(program.offsets[number], program.offsets[number + 1])
        table = np.array(spans, dtype=np.float64).reshape(-1, 2)
        start[actions], end[actions] = table[:, 0], table[:, 1]
        steps = actions[program.kind[actions] == Kind.STEP]
        start[steps], end[steps] = stepped[1], stepped[1]
        start[steps[:1]] = stepped[0]
        returns = actions[np.isin(program.kind[actions], (Kind.SEND_P, Kind.RECV_P, Kind.GATHER_P))]
        unknown = returns[end[returns] == 0.0]
        start[unknown], end[unknown] = stepped[1], stepped[1]
    issued = np.flatnonzero(dependencies.transfer_of != NONE)
    started, ended = np.full(dependencies.num_transfers, -np.inf), np.full(dependencies.num_transfers, -np.inf)
    np.maximum.at(started, dependencies.transfer_of[issued], start[issued])
    # The sender only sees the start of a transfer. Receivers and the ranks of a reduction see its end.
    observed = issued[~is_send(program.kind[issued])]
    np.maximum.at(ended, dependencies.transfer_of[observed], end[observed])
    _correct_early_arrivals(proof, start, end, ended)
    started = np.minimum(started, ended)
    start[issued], end[issued] = started[dependencies.transfer_of[issued]], ended[dependencies.transfer_of[issued]]
    zero = float(start.min())
    return build_timeline(proof, start - zero, np.maximum(end, start) - zero, "measured")
