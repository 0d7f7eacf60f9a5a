"""Weight-gradient filling: a fixed order of forwards and input gradients, with W where a device would wait.

Given every device's order of F and I (its track), the passes are timed with their real costs and with the links' real
delays. If a device's next pass is not ready, it runs deferred weight gradients, oldest first, as long as at least half
of one fits into the wait; it must run them when a forward would exceed the number of micro-batches it may keep. The
rest runs at the end. Since tracks are fixed, the ready time of a pass is known before its device decides: one sweep
suffices. Cost: O(passes and messages).
"""

from typing import TYPE_CHECKING

import numpy as np

from penstock.plan.pricing import Costs
from penstock.program import (
    BACKWARD,
    FORWARD,
    NONE,
    RECOMPUTE,
    SPLIT_KINDS,
    WEIGHTS,
    Kind,
    Program,
    find_pass_edges,
    program_from_arrays,
    replicas_of,
)

if TYPE_CHECKING:
    from penstock.schedules.ordering.weight_filling_kernel import Graph

MIN_FIT = 0.5
"""The part of a weight gradient that must fit into a wait."""


def fill_weights(track: Program, costs: Costs, most_kept: int) -> Program:
    """The track, whose backwards are B, with each B split into I and W and each W where it costs least.

    `most_kept` is the number of (stage, micro-batch) pairs whose tensors a device may keep before it must run Ws.
    """
    from penstock.schedules.ordering.weight_filling_kernel import Track, run_filling

    kinds = np.zeros(int(Kind.B) + 1, dtype=np.int64)
    kinds[[Kind.F, Kind.R, Kind.B]] = FORWARD, RECOMPUTE, BACKWARD
    seconds = np.concatenate([costs.forward_s, costs.recompute_s, costs.input_grad_s, costs.weight_grad_s])
    counts, kind, replica, microbatch = run_filling(
        Track(track.offsets, kinds[track.kind], replicas_of(track, costs), track.microbatch.astype(np.int64)),
        _graph(costs),
        costs.num_microbatches,
        seconds,
        costs.forward_device == costs.backward_device,
        most_kept,
        MIN_FIT,
    )
    names = np.array(SPLIT_KINDS, dtype=np.int8)
    return program_from_arrays(track.plan, track.devices, counts, names[kind], costs.replica_stage[replica], microbatch)


def _graph(costs: Costs) -> "Graph":
    """The dependencies of the passes of a track, that is of all but weight gradients, and the devices to wake."""
    from penstock.schedules.ordering.weight_filling_kernel import Graph

    edges = find_pass_edges(costs)
    passes = np.arange(WEIGHTS * costs.num_replicas + 1)
    needed = np.argsort(edges.target, kind="stable")
    needed = needed[edges.target[needed] < passes[-1]]
    sent = np.flatnonzero(edges.flow != NONE)
    sent = sent[np.argsort(edges.source[sent], kind="stable")]
    return Graph(
        need_begin=np.searchsorted(edges.target[needed], passes),
        need=edges.source[needed],
        need_delay=edges.of_flows(costs.delay_s, 0.0)[needed],
        wake_begin=np.searchsorted(edges.source[sent], passes),
        wake_device=costs.flows.target[edges.flow[sent]],
    )
