"""Memory of a device along its program. It follows from the order alone, not from times, so it can be proved.

- All the time: weights (every copy), gradients, optimizer state, and workspace (`workspace.py`).
- From F's start: saved tensors (only the stage's input if it recomputes); R adds the rest. I frees what W does not
  need, W or B frees all.
- From a receive's posting: its buffer. F keeps received activations as its saved input; I or B frees gradients.
- A sent tensor counts from its send, or from the end of the action that produces it if its device computes something
  else in between. It is assumed to be freed when its device has finished the next compute action behind the send, or at
  once if it is copied for a receiver on the same host. Saved tensors of a remote backward count on the sender until
  then, and on the receiver from the receive on. If they are copied within a host, they count from the receive before:
  the sender does not wait for a posted receive, and is assumed to be one message ahead.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, SAVED, Costs
from penstock.program.actions import Kind, is_compute
from penstock.program.job_table import JobTable, find_jobs
from penstock.program.types import Program


@dataclass(frozen=True, eq=False)
class MemoryUse:
    """Bytes on its device while each action runs, and right after it; including static memory."""

    during: Floats
    after: Floats

    def peak(self, program: Program, costs: Costs) -> Floats:
        """The largest use of every device."""
        peaks = costs.static_bytes.copy()
        begins, used = program.offsets[:-1], np.diff(program.offsets) > 0
        if used.any():
            highest = np.maximum.reduceat(np.maximum(self.during, self.after), begins[used])
            peaks[used] = np.maximum(peaks[used], highest)
        return peaks


@dataclass(frozen=True, eq=False)
class MemoryChanges:
    """Bytes allocated before and freed after each action, by purpose."""

    saved_before: Floats
    saved_after: Floats
    received_before: Floats
    received_after: Floats
    sent_before: Floats
    sent_after: Floats


def memory_use(program: Program, costs: Costs, jobs: JobTable | None = None) -> MemoryUse:
    """Memory along a lowered program."""
    changes = memory_changes(program, costs, find_jobs(program, costs) if jobs is None else jobs)
    before = changes.saved_before + changes.received_before + changes.sent_before
    after = changes.saved_after + changes.received_after + changes.sent_after
    running = np.cumsum(before + after)
    used = np.flatnonzero(np.diff(program.offsets) > 0)
    begins = program.offsets[used]
    carried = np.where(begins > 0, running[begins - 1], 0.0)
    base = np.repeat(costs.static_bytes[used] - carried, np.diff(program.offsets)[used])
    running += base
    return MemoryUse(during=running - after, after=running)


def memory_changes(program: Program, costs: Costs, jobs: JobTable) -> MemoryChanges:
    """The bytes that each action of a lowered program allocates and frees."""
    size, replica = program.num_actions, jobs.replica
    arrays = [np.zeros(size) for _ in range(6)]
    saved_before, saved_after, received_before, received_after, sent_before, sent_after = arrays
    flows = costs.flows
    stage = costs.replica_stage
    kept, saved, pending = (
        values[stage] * costs.share for values in (costs.kept_bytes, costs.saved_bytes, costs.pending_bytes)
    )
    inbound = {
        what: np.bincount(
            flows.target_replica[flows.what == what], flows.num_bytes[flows.what == what], minlength=costs.num_replicas
        )
        for what in (ACTIVATION, GRADIENT)
    }

    rows = program.rows_of(Kind.F)
    saved_before[rows] = kept[replica[rows]]
    received_before[rows] = -inbound[ACTIVATION][replica[rows]]
    rows = program.rows_of(Kind.R)
    saved_before[rows] = (saved - kept)[replica[rows]]
    rows = program.rows_of(Kind.I)
    saved_after[rows] = (pending - saved)[replica[rows]]
    received_after[rows] = -inbound[GRADIENT][replica[rows]]
    rows = program.rows_of(Kind.W)
    saved_after[rows] = -pending[replica[rows]]
    rows = program.rows_of(Kind.B)
    saved_after[rows] = -saved[replica[rows]]
    received_after[rows] = -inbound[GRADIENT][replica[rows]]
    rows = program.rows_of(Kind.STEP)
    saved_before[rows] = costs.more_at_step_bytes[program.device_of[rows]]
    saved_after[rows] = -saved_before[rows]
    rows = program.rows_of(Kind.RECV_S)
    there = _there_from(rows, flows.incoming(SAVED, replica[rows], program.peer[rows]), costs.leaves_at_once)
    np.add.at(saved_before, there, kept[replica[rows]])

    for kind, what in ((Kind.RECV_F, ACTIVATION), (Kind.RECV_B, GRADIENT)):
        rows = program.rows_of(kind)
        received_before[rows] = flows.num_bytes[flows.incoming(what, replica[rows], program.peer[rows])]
    computes = is_compute(program.kind)
    compute, num_before = np.append(np.flatnonzero(computes), size), np.cumsum(computes)
    for kind, what, table in (
        (Kind.SEND_F, ACTIVATION, jobs.forward),
        (Kind.SEND_B, GRADIENT, jobs.backward),
        (Kind.SEND_S, SAVED, jobs.forward),
    ):
        rows = program.rows_of(kind)
        flow = flows.outgoing(what, replica[rows], program.peer[rows])
        num_bytes = flows.num_bytes[flow]
        leaves = np.where(costs.leaves_at_once[flow], rows, compute[num_before[rows]])
        device_end = program.offsets[1:][program.device_of[rows]]
        stays = leaves < device_end
        if what == SAVED:
            np.add.at(saved_after, leaves[stays], -num_bytes[stays])
        else:
            producer = table[replica[rows], program.microbatch[rows]]
            waits = num_before[rows] > num_before[producer]
            sent_before[rows[~waits]] = num_bytes[~waits]
            np.add.at(sent_after, producer[waits], num_bytes[waits])
            np.add.at(sent_after, leaves[stays], -num_bytes[stays])
    return MemoryChanges(*arrays)


def _there_from(rows: Ints, flow: Ints, is_copied: npt.NDArray[np.bool_]) -> Ints:
    """For receives of saved tensors, in the order of their devices' programs: the receive from which on they are held.

    >>> _there_from(np.array([1, 4, 5, 9]), np.array([0, 1, 0, 0]), np.array([True, True])).tolist()
    [1, 4, 1, 5]
    """
    order = np.argsort(flow, kind="stable")
    follows = np.diff(flow[order], prepend=-1) == 0
    found = rows.copy()
    later = np.flatnonzero(follows & is_copied[flow[order]])
    found[order[later]] = rows[order[later - 1]]
    return found
