"""Weight-gradient filling: a fixed order of forwards and input gradients, with W where a device would wait.

Given every device's order of F and I (its track), the passes are timed with their real costs and with the links' real
delays. If a device's next pass is not ready, it runs deferred weight gradients, oldest first, as long as at least half
of one fits into the wait; it must run them when a forward would exceed the number of micro-batches it may keep. The
rest runs at the end. Since tracks are fixed, the ready time of a pass is known before its device decides: one sweep
suffices. Cost: O(passes and messages).
"""

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, SAVED, Costs
from penstock.program import Kind, Program, program_from_arrays, replicas_of

LEAST_FIT = 0.5
"""The part of a weight gradient that must fit into a wait."""
FORWARD, RECOMPUTE, BACKWARD, WEIGHTS = range(4)


def fill_weights(track: Program, costs: Costs, most_kept: int) -> Program:
    """The track, whose backwards are B, with each B split into I and W and each W where it costs least.

    `most_kept` is the number of (stage, micro-batch) pairs whose tensors a device may keep before it must run Ws.
    """
    from penstock.schedules.ordering.weight_filling_kernel import run_filling

    kinds = np.zeros(int(Kind.B) + 1, dtype=np.int64)
    kinds[[Kind.F, Kind.R, Kind.B]] = FORWARD, RECOMPUTE, BACKWARD
    counts, kind, replica, microbatch = run_filling(
        track.offsets,
        kinds[track.kind],
        replicas_of(track, costs),
        track.microbatch.astype(np.int64),
        costs.num_microbatches,
        np.concatenate([costs.forward_s, costs.recompute_s, costs.input_grad_s, costs.weight_grad_s]),
        costs.forward_device == costs.backward_device,
        *_needs(costs),
        *_wakes(costs),
        most_kept,
        LEAST_FIT,
    )
    names = np.array([Kind.F, Kind.R, Kind.I, Kind.W], dtype=np.int8)
    return program_from_arrays(track.plan, track.devices, counts, names[kind], costs.replica_stage[replica], microbatch)


def _needs(costs: Costs) -> tuple[Ints, Ints, Floats]:
    """For each state (a kind of pass of a replica) its dependencies in the same micro-batch, and the delays."""
    num, flows, delay = costs.num_replicas, costs.flows, costs.delay_s
    again = costs.recompute[costs.replica_stage]
    replicas = np.arange(num)
    first = np.where(again, RECOMPUTE, BACKWARD) * num + replicas
    saved_s = np.zeros(num)
    moved = flows.what == SAVED
    saved_s[flows.target_replica[moved]] = delay[moved]
    rows: list[tuple[Ints, Ints, Floats]] = [(first, FORWARD * num + replicas, saved_s)]
    rows.append((BACKWARD * num + replicas[again], RECOMPUTE * num + replicas[again], np.zeros(int(again.sum()))))
    for side, what, local in (
        (FORWARD, ACTIVATION, flows.local_forward),
        (BACKWARD, GRADIENT, flows.local_backward),
    ):
        here = flows.what == what
        rows.append((side * num + flows.target_replica[here], side * num + flows.source_replica[here], delay[here]))
        rows.append((side * num + local[:, 1], side * num + local[:, 0], np.zeros(len(local))))
    target, source, seconds = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    order = np.argsort(target, kind="stable")
    begin = np.searchsorted(target[order], np.arange(3 * num + 1)).astype(np.int64)
    return begin, source[order].astype(np.int64), seconds[order]


def _wakes(costs: Costs) -> tuple[Ints, Ints]:
    """For each state the other devices that it may unblock."""
    num, flows = costs.num_replicas, costs.flows
    here = np.isin(flows.what, (ACTIVATION, GRADIENT, SAVED))
    side = np.where(flows.what[here] == GRADIENT, BACKWARD, FORWARD)
    state = side * num + flows.source_replica[here]
    order = np.argsort(state, kind="stable")
    begin = np.searchsorted(state[order], np.arange(3 * num + 1)).astype(np.int64)
    return begin, flows.target[here][order].astype(np.int64)
