"""What each action waited for, worked out from starts and ends: the same for simulated and measured timelines."""

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program import NONE, Kind, Lists, Program
from penstock.program.proof import Proof


def find_causes(proof: Proof, end_s: Floats) -> Ints:
    """For each action the one whose end came last among all that it waits for; NONE where there is none.

    Compute waits for the compute before it and for what it receives. A transfer waits for all that set it going and for
    the transfers before it on its links. With those that it shares an interface with it passes at the same time.
    """
    from penstock.timeline.causes_kernel import take_later

    wiring = proof.wiring
    before = compute_before(proof.program)
    cause = before.copy()
    latest = np.where(before == NONE, 0.0, end_s[before])

    transfer_cause = _transfer_causes(proof, before, latest, end_s)
    issued = np.flatnonzero(wiring.transfer_of != NONE)
    cause[issued] = transfer_cause[wiring.transfer_of[issued]]

    owner = _owners(wiring.consumers)
    arrived = end_s[wiring.send][owner]
    take_later(cause, latest, wiring.consumers.values, arrived, wiring.send[owner], False)
    _reductions_at_home(proof, cause)
    return cause


def _transfer_causes(proof: Proof, before: Ints, latest: Floats, end_s: Floats) -> Ints:
    """The same for transfers: over the compute actions before their issue, and their links."""
    from penstock.timeline.causes_kernel import take_later

    wiring = proof.wiring
    cause = np.full(wiring.num_transfers, NONE, dtype=np.int64)
    time = np.zeros(wiring.num_transfers)
    issued = np.flatnonzero(wiring.transfer_of != NONE)
    # A receive that was posted late, then the send: at equal times the sender is named.
    order = np.argsort(proof.program.kind[issued] <= Kind.SEND_P, kind="stable")
    issued = issued[order]
    take_later(cause, time, wiring.transfer_of[issued].astype(np.int64), latest[issued], before[issued], True)
    released = end_s[wiring.send] - wiring.latency_s
    owner = _owners(wiring.next_on_links)
    take_later(cause, time, wiring.next_on_links.values, released[owner], wiring.send[owner], False)
    return cause


def compute_before(program: Program) -> Ints:
    """For each action the last compute action before it on its device, or NONE."""
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
