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
    before = compute_before(proof.program)
    cause = before.copy()
    latest = np.where(before == NONE, 0.0, end_s[before])

    transfer_cause = _transfer_causes(proof, before, latest, end_s)
    issued = np.flatnonzero(dependencies.transfer_of != NONE)
    cause[issued] = transfer_cause[dependencies.transfer_of[issued]]

    owner = _owners(dependencies.consumers)
    arrived = end_s[dependencies.send][owner]
    take_later(cause, latest, dependencies.consumers.values, arrived, dependencies.send[owner], False)
    _reductions_at_home(proof, cause)
    return cause


def _transfer_causes(proof: Proof, before: Ints, latest: Floats, end_s: Floats) -> Ints:
    """The same for transfers: over the compute actions before their issue, and their links."""
    from penstock.timeline.causes_kernel import take_later

    dependencies = proof.dependencies
    cause = np.full(dependencies.num_transfers, NONE, dtype=np.int64)
    time = np.zeros(dependencies.num_transfers)
    issued = np.flatnonzero(dependencies.transfer_of != NONE)
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
