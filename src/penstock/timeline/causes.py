"""The dependency that each action waited for, from starts and ends, for simulated and measured timelines."""

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program import NONE, Kind, Lists, Program, is_compute, is_reduction, is_send
from penstock.program.proof import Proof


def find_causes(proof: Proof, end_s: Floats) -> Ints:
    """For each action the dependency that ended last, or NONE.

    A compute action depends on the compute action before it and on its receives. A transfer depends on the actions that
    issue it and on the transfers before it on its links. Transfers that share an interface do not wait for each other.
    """
    from penstock.timeline.causes_kernel import take_later

    dependencies = proof.dependencies
    before, latest = _device_causes(proof, end_s)
    cause = before.copy()

    transfer_cause = _transfer_causes(proof, before, latest, end_s)
    issued = np.flatnonzero(dependencies.transfer_of != NONE)
    cause[issued] = transfer_cause[dependencies.transfer_of[issued]]

    # At equal times, what an action needs is the cause, not a message at which its device is blocked.
    for lists in (dependencies.consumers, dependencies.waiting):
        owner, waiting = _owners(lists), lists.values
        passes = dependencies.transfer_of[waiting] == NONE
        owner, waiting = owner[passes], waiting[passes]
        arrived = end_s[dependencies.send][owner]
        take_later(cause, latest, waiting, arrived, dependencies.send[owner], False)
        if dependencies.waiting is dependencies.consumers:
            break
    _reductions_at_home(proof, cause)
    return cause


def _device_causes(proof: Proof, end_s: Floats) -> tuple[Ints, Floats]:
    """For each action what its device did or waited for last before it, and when that ended.

    That is the compute action before it, or a message at which the device blocked since.
    """
    from penstock.timeline.causes_kernel import take_later

    program, dependencies = proof.program, proof.dependencies
    before = compute_before(program)
    latest = np.where(before == NONE, 0.0, end_s[before])
    owner = _owners(dependencies.waiting)
    is_message = dependencies.transfer_of[dependencies.waiting.values] != NONE
    owner, blocked = owner[is_message], dependencies.waiting.values[is_message]
    if not len(blocked):
        return before, latest
    arrived = end_s[dependencies.send]
    take_later(before, latest, blocked, arrived[owner], dependencies.send[owner], False)
    # The last action at or before each one at which its device may have blocked since its last compute action.
    number = np.arange(program.num_actions)
    stops = np.full(program.num_actions, NONE)
    stops[blocked] = blocked
    last = np.maximum.accumulate(stops)
    since = compute_before(program)
    since = np.where(since == NONE, program.offsets[:-1][program.device_of], since)
    is_later = (last > since) & (last < number) & (latest[last] > latest)
    return np.where(is_later, before[last], before), np.where(is_later, latest[last], latest)


def _transfer_causes(proof: Proof, before: Ints, latest: Floats, end_s: Floats) -> Ints:
    """The same for transfers: over the compute actions before their issue, and their links."""
    from penstock.timeline.causes_kernel import take_later

    dependencies = proof.dependencies
    cause = np.full(dependencies.num_transfers, NONE, dtype=np.int64)
    time = np.zeros(dependencies.num_transfers)
    issued = np.flatnonzero(dependencies.transfer_of != NONE)
    transfer = dependencies.transfer_of[issued]
    # An eager message does not wait for its receive.
    issued = issued[(issued == dependencies.send[transfer]) | ~dependencies.is_eager[transfer]]
    # Late receives first, then sends: at equal times the sender is the cause.
    order = np.argsort(is_send(proof.program.kind[issued]), kind="stable")
    issued = issued[order]
    take_later(cause, time, dependencies.transfer_of[issued].astype(np.int64), latest[issued], before[issued], True)
    released = end_s[dependencies.send] - dependencies.latency_s
    owner = _owners(dependencies.next_on_links)
    take_later(cause, time, dependencies.next_on_links.values, released[owner], dependencies.send[owner], False)
    return cause


def compute_before(program: Program) -> Ints:
    """For each action the last compute action before it on its device, or NONE."""
    index = np.where(is_compute(program.kind), np.arange(program.num_actions), NONE)
    before = np.concatenate([[NONE], np.maximum.accumulate(index)[:-1]]) if len(index) else index
    return np.where(before >= program.offsets[:-1][program.device_of], before, NONE)


def _reductions_at_home(proof: Proof, cause: Ints) -> None:
    """Actions that wait for a reduction get the reduction's action on their own device as the cause."""
    program, dependencies = proof.program, proof.dependencies
    rows = program.rows_of(Kind.STEP)
    rows = rows[cause[rows] != NONE]
    rows = rows[is_reduction(program.kind[cause[rows]])]
    issuers: dict[tuple[int, int], int] = {}
    for action in np.flatnonzero(is_reduction(program.kind)).tolist():
        issuers[int(dependencies.transfer_of[action]), int(program.device_of[action])] = action
    for row in rows.tolist():
        cause[row] = issuers[int(dependencies.transfer_of[cause[row]]), int(program.device_of[row])]


def _owners(lists: Lists) -> Ints:
    return np.repeat(np.arange(len(lists.begin) - 1), np.diff(lists.begin))
