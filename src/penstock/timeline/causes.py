"""What each action waited for, worked out from starts and ends: the same for simulated and measured timelines."""

import numpy as np
import numpy.typing as npt

from penstock.program.actions import NONE, Kind
from penstock.program.proof import Proof
from penstock.program.wiring import Lists

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def find_causes(proof: Proof, start_s: Floats, end_s: Floats) -> Ints:
    """For each action the one whose end came last among all that it waits for; NONE where there is none.

    Compute waits for the compute before it and for what it receives. A transfer waits for all that set it going, for
    the transfers before it on its links, and for those before it on shared interfaces.
    """
    wiring = proof.wiring
    before = _compute_before(proof)
    cause = before.copy()
    latest = np.where(before == NONE, 0.0, end_s[before])

    transfer_cause = _transfer_causes(proof, before, latest, start_s, end_s)
    issued = np.flatnonzero(wiring.transfer_of != NONE)
    cause[issued] = transfer_cause[wiring.transfer_of[issued]]

    owner = _owners(wiring.consumers)
    arrived = end_s[wiring.send][owner]
    _later(cause, latest, wiring.consumers.values, arrived, wiring.send[owner])
    _reductions_at_home(proof, cause)
    return cause


def _transfer_causes(proof: Proof, before: Ints, latest: Floats, start_s: Floats, end_s: Floats) -> Ints:
    """The same for transfers: over the compute actions before their issue, their links, and their interfaces."""
    wiring = proof.wiring
    cause = np.full(wiring.num_transfers, NONE, dtype=np.int64)
    time = np.zeros(wiring.num_transfers)
    issued = np.flatnonzero(wiring.transfer_of != NONE)
    # A receive that was posted late, then the send: at equal times the sender is named.
    order = np.argsort(proof.program.kind[issued] <= Kind.SEND_P, kind="stable")
    issued = issued[order]
    _later(cause, time, wiring.transfer_of[issued].astype(np.int64), latest[issued], before[issued], or_equal=True)
    begun = start_s[wiring.send]
    released = end_s[wiring.send] - wiring.latency_s
    owner = _owners(wiring.next_on_links)
    _later(cause, time, wiring.next_on_links.values, released[owner], wiring.send[owner])
    if len(wiring.interfaces.values):
        entry = np.lexsort((begun[_owners(wiring.interfaces)], wiring.interfaces.values))
        use, user = wiring.interfaces.values[entry], _owners(wiring.interfaces)[entry]
        follows = np.flatnonzero(use[1:] == use[:-1])
        free = begun[user] + wiring.interface_s[entry]
        _later(cause, time, user[follows + 1], free[follows], wiring.send[user[follows]])
    return cause


def _later(
    cause: Ints, time: Floats, rows: Ints, candidate_s: Floats, candidate: Ints, *, or_equal: bool = False
) -> None:
    """Where a candidate came later than what is known so far, it is the cause."""
    best = np.full(len(time), -1.0)
    np.maximum.at(best, rows, candidate_s)
    wins = (candidate_s >= time[rows]) if or_equal else (candidate_s > time[rows])
    wins &= candidate_s == best[rows]
    cause[rows[wins]] = candidate[wins]
    np.maximum(time, best, out=time)


def _compute_before(proof: Proof) -> Ints:
    """For each action the last compute action before it on its device, or NONE."""
    program = proof.program
    place = np.where(program.kind <= Kind.STEP, np.arange(program.num_actions), NONE)
    before = np.concatenate([[NONE], np.maximum.accumulate(place)[:-1]]) if len(place) else place
    return np.where(before >= program.offsets[:-1][program.device_of], before, NONE)


def _reductions_at_home(proof: Proof, cause: Ints) -> None:
    """What waits for a reduction names the reduction's action on its own device."""
    program, wiring = proof.program, proof.wiring
    rows = np.flatnonzero(program.kind == Kind.STEP)
    rows = rows[cause[rows] != NONE]
    rows = rows[program.kind[cause[rows]] >= Kind.REDUCE_GRAD]
    issuers: dict[tuple[int, int], int] = {}
    for action in np.flatnonzero(program.kind >= Kind.REDUCE_GRAD).tolist():
        issuers[int(wiring.transfer_of[action]), int(program.device_of[action])] = action
    for row in rows.tolist():
        cause[row] = issuers[int(wiring.transfer_of[cause[row]]), int(program.device_of[row])]


def _owners(lists: Lists) -> Ints:
    return np.repeat(np.arange(len(lists.begin) - 1), np.diff(lists.begin))
