"""The timeline of an iteration that was run, from what every rank wrote down.

Compute is measured where it runs. A message begins when both ends have set it going. It ends when the receiver finds it
there, which is when it needs it, or when the job before ended if it was not waited for: it may have come earlier. The
optimizer's step is one for all stages of a rank, and is put down to the first. Parameters that go back are taken to
arrive at once, as nothing waits for them before the next iteration, unless it is said when they did.
"""

import socket
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch.distributed as dist

from penstock.arrays import Floats
from penstock.program import NONE, Kind
from penstock.program.proof import Proof
from penstock.timeline import Timeline, build_timeline, compute_before

Span = tuple[float, float]

AT_ONCE_S = 3e-4
"""A job that begins so soon after the one before it has waited for nothing: that is what the runtime takes."""


def gather_timeline(
    proof: Proof, devices: Sequence[str], spans_s: Sequence[Span], stepped_s: Span, group: Any
) -> Timeline:
    """Put together what the ranks wrote down; the spans of parameters that go back may be zeros."""
    dist.barrier(group=group)
    mine = (socket.gethostname(), perf_counter(), list(spans_s), stepped_s)
    everybody: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everybody, mine, group=group)
    return measured_timeline(proof, devices, [_on_one_clock(item, everybody[0]) for item in everybody])


def _not_waited_for(proof: Proof, start: Floats, end: Floats, ended: Floats) -> None:
    """Of a message that was there when its job was due, it is only known that it came before: so by then at the latest.

    Else every message would seem to be what its job waited for.
    """
    consumers = proof.wiring.consumers
    transfer = np.repeat(np.arange(len(consumers.begin) - 1), np.diff(consumers.begin))
    before = compute_before(proof.program)[consumers.values]
    there = (before != NONE) & (start[consumers.values] - end[before] < AT_ONCE_S)
    np.minimum.at(ended, transfer[there], end[before[there]])


def _on_one_clock(item: Any, first: Any) -> tuple[list[Span], Span]:
    """Clocks of one host agree; those of others are set by the moment at which all left the barrier."""
    host, now, spans, stepped = item
    shift = 0.0 if host == first[0] else first[1] - now
    return [(start + shift, end + shift) for start, end in spans], (stepped[0] + shift, stepped[1] + shift)


def measured_timeline(proof: Proof, devices: Sequence[str], ranks: Sequence[tuple[list[Span], Span]]) -> Timeline:
    """The timeline of a program, of whose devices in use rank k is the k-th."""
    program, wiring = proof.program, proof.wiring
    start, end = np.zeros(program.num_actions), np.zeros(program.num_actions)
    for name, (spans, stepped) in zip(devices, ranks, strict=False):
        number = program.devices.index(name)
        rows = np.arange(program.offsets[number], program.offsets[number + 1])
        table = np.array(spans, dtype=np.float64).reshape(-1, 2)
        start[rows], end[rows] = table[:, 0], table[:, 1]
        steps = rows[program.kind[rows] == Kind.STEP]
        start[steps], end[steps] = stepped[1], stepped[1]
        start[steps[:1]] = stepped[0]
        returns = rows[np.isin(program.kind[rows], (Kind.SEND_P, Kind.RECV_P))]
        untold = returns[end[returns] == 0.0]
        start[untold], end[untold] = stepped[1], stepped[1]
    issued = np.flatnonzero(wiring.transfer_of != NONE)
    begun, ended = np.full(wiring.num_transfers, -np.inf), np.full(wiring.num_transfers, -np.inf)
    np.maximum.at(begun, wiring.transfer_of[issued], start[issued])
    # A send is done with when it is set going; whoever receives, or takes part in a sum, sees the end.
    sees = issued[program.kind[issued] > Kind.SEND_P]
    np.maximum.at(ended, wiring.transfer_of[sees], end[sees])
    _not_waited_for(proof, start, end, ended)
    begun = np.minimum(begun, ended)
    start[issued], end[issued] = begun[wiring.transfer_of[issued]], ended[wiring.transfer_of[issued]]
    zero = float(start.min())
    return build_timeline(proof, start - zero, np.maximum(end, start) - zero, "measured")
