"""The dependency graph of a lowered program: matched sends and receives, their consumers, and the order on links.

A *transfer* is a message between two devices or a collective over a ring: a reduction or an all-gather. It starts when
all its participants have issued it (sender and receiver; all devices of a ring) and when the transfers before it on all
of its links are done. On a link, transfers run in the order in which the sending device issues them.
"""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Bools, Floats, Int32s, Ints
from penstock.plan.pricing import Collective, Costs
from penstock.program.actions import COLLECTIVE_KINDS, NONE, Kind, collective_kind
from penstock.program.dependencies.blocking import find_blocked, find_eager
from penstock.program.dependencies.messages import match_messages
from penstock.program.dependencies.passes import passes_to
from penstock.program.job_table import JobTable
from penstock.program.types import Program


class Lists(NamedTuple):
    """A list of numbers for each transfer, kept as one array: those of t are values[begin[t]:begin[t + 1]]."""

    begin: Ints
    values: Ints


class Dependencies(NamedTuple):
    """Transfers, messages first (in the order of their sends in the program), then reductions, then all-gathers.

    The compiled engine takes it as it is. Numba does not see that its fields change: then delete the engine's cache.
    """

    transfer_of: Int32s
    """For each action the transfer that it issues, or NONE."""
    send: Ints
    """For each message its send action; for each collective the first action that issues it."""
    receive: Ints
    """For each message its receive action; for each collective NONE."""
    num_bytes: Floats
    """Bytes of the message, or bytes that every device of a ring sends."""
    occupancy_s: Floats
    latency_s: Floats
    num_needs: Int32s
    """The number of actions and earlier transfers that each transfer waits for."""
    next_on_links: Lists
    consumers: Lists
    """The actions that use what each transfer brings."""
    waiting: Lists
    """The actions that wait for each transfer: its consumers, and devices that block until it has arrived."""
    is_eager: Bools
    """Whether each transfer starts without its receiver."""
    interfaces: Lists
    """Directions of shared interfaces that each transfer occupies: 2 * host for outgoing, 2 * host + 1 for incoming."""
    interface_s: Floats
    """Seconds of each entry of `interfaces`."""

    @property
    def num_transfers(self) -> int:
        """The number of transfers."""
        return len(self.send)


def find_dependencies(program: Program, costs: Costs, jobs: JobTable) -> Dependencies:
    """The dependency graph of a lowered program whose sends and receives pair up (the proof checks that)."""
    send, matched = match_messages(program)
    collectives = costs.collectives
    participants = _participants(program, costs)
    transfer_of = np.full(program.num_actions, NONE, dtype=np.int32)
    transfer_of[send] = np.arange(len(send))
    transfer_of[matched] = np.arange(len(send))
    for number, actions in enumerate(participants):
        transfer_of[actions] = len(send) + number

    what = program.kind[send].astype(np.int64) - int(Kind.SEND_F)
    flow = costs.flows.outgoing(what, jobs.replica[send], program.peer[send])
    num_bytes = costs.flows.num_bytes[flow]
    source, target = program.device_of[send].astype(np.int64), program.peer[send].astype(np.int64)
    occupancy = num_bytes / costs.cluster.bandwidth[source, target]
    interfaces, interface_s, occupancy = _interfaces(costs, source, target, num_bytes, occupancy)
    next_on_links, num_before = _next_on_links(program, collectives, participants, send, source, target)
    eager = np.concatenate([find_eager(costs.messages, num_bytes), np.zeros(len(participants), dtype=np.bool_)])
    set_going = np.concatenate([2 - eager[: len(send)].astype(np.int64), [len(actions) for actions in participants]])
    consumers = _consumers(program, costs, jobs, what, matched)
    return Dependencies(
        transfer_of=transfer_of,
        send=np.concatenate([send, [actions[0] for actions in participants]]).astype(np.int64),
        receive=np.concatenate([matched, np.full(len(participants), NONE)]).astype(np.int64),
        num_bytes=np.concatenate([num_bytes, [item.ring.sent_bytes for item in collectives]]),
        occupancy_s=np.concatenate([occupancy, [item.ring.occupancy_s for item in collectives]]),
        latency_s=np.concatenate(
            [costs.cluster.latency_s[source, target], [item.ring.latency_s for item in collectives]]
        ),
        num_needs=(set_going + num_before).astype(np.int32),
        next_on_links=next_on_links,
        consumers=consumers,
        waiting=_with(consumers, *find_blocked(program, costs.messages, send, matched, num_bytes)),
        is_eager=eager,
        interfaces=interfaces,
        interface_s=interface_s,
    )


def _participants(program: Program, costs: Costs) -> list[Ints]:
    """For each collective the actions that issue it, in ring order."""
    rows = program.rows_of(*COLLECTIVE_KINDS)
    where = {(int(program.kind[row]), int(program.stage[row]), int(program.device_of[row])): int(row) for row in rows}
    found = []
    for item in costs.collectives:
        kind = collective_kind(is_tie=item.is_tie, is_gather=item.is_gather)
        found.append(np.array([where[int(kind), item.number, device] for device in item.ring.devices], dtype=np.int64))
    return found


def _interfaces(
    costs: Costs, source: Ints, target: Ints, num_bytes: Floats, occupancy: Floats
) -> tuple[Lists, Floats, Floats]:
    """Use of shared interfaces; a message is never faster than the interfaces it crosses."""
    num = len(source)
    owner, use, seconds = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    host = costs.cluster.host_index
    bandwidth = np.array(
        [np.nan if item.interface_bandwidth is None else item.interface_bandwidth for item in costs.cluster.hosts]
    )
    crossing = np.flatnonzero(host[source] != host[target])
    for side, end in ((0, source), (1, target)):
        rows = crossing[~np.isnan(bandwidth[host[end[crossing]]])]
        taken = num_bytes[rows] / bandwidth[host[end[rows]]]
        occupancy = occupancy.copy()
        occupancy[rows] = np.maximum(occupancy[rows], taken)
        owner.append(rows)
        use.append(2 * host[end[rows]] + side)
        seconds.append(taken)
    for number, item in enumerate(costs.collectives):
        for entry in item.ring.interfaces:
            owner.append(np.array([num + number]))
            use.append(np.array([2 * entry.host + (0 if entry.outgoing else 1)]))
            seconds.append(np.array([entry.seconds]))
    owners = np.concatenate(owner)
    order = np.argsort(owners, kind="stable")
    lists = _lists(owners[order], np.concatenate(use)[order], num + len(costs.collectives))
    return lists, np.concatenate(seconds)[order], occupancy


def _next_on_links(
    program: Program,
    collectives: tuple[Collective, ...],
    participants: list[Ints],
    send: Ints,
    source: Ints,
    target: Ints,
) -> tuple[Lists, Ints]:
    """For each transfer the next ones on its links, and the number of transfers directly before it."""
    num_devices = len(program.devices)
    links, actions, owners = [source * num_devices + target], [send], [np.arange(len(send))]
    for number, (item, issued) in enumerate(zip(collectives, participants, strict=True)):
        ends = np.array(item.ring.links, dtype=np.int64)
        links.append(ends[:, 0] * num_devices + ends[:, 1])
        actions.append(issued)
        owners.append(np.full(len(issued), len(send) + number))
    link, owner = np.concatenate(links), np.concatenate(owners)
    order = np.lexsort((np.concatenate(actions), link))
    link, owner = link[order], owner[order]
    follows = np.flatnonzero(link[1:] == link[:-1])
    before, after = owner[follows], owner[follows + 1]
    num = len(send) + len(collectives)
    by_first = np.argsort(before, kind="stable")
    return _lists(before[by_first], after[by_first], num), np.bincount(after, minlength=num)


def _consumers(program: Program, costs: Costs, jobs: JobTable, what: Ints, matched: Ints) -> Lists:
    """The pass that uses each message, and the optimizer steps that wait for each reduction."""
    waiting = passes_to(what, jobs.replica[matched], costs.recompute[costs.replica_stage])
    used = np.flatnonzero(waiting != NONE)
    actions = [jobs.passes[waiting[used], program.microbatch[matched[used]]]]
    owners = [used]
    for number, item in enumerate(costs.reductions):
        steps = np.concatenate([jobs.step[costs.replicas(stage)] for stage in item.stages])
        owners.append(np.full(len(steps), len(matched) + number))
        actions.append(steps)
    return _lists(np.concatenate(owners), np.concatenate(actions), len(matched) + len(costs.collectives))


def _with(lists: Lists, owner: Ints, values: Ints) -> Lists:
    """The lists with more entries, each entry once."""
    if not len(owner):
        return lists
    num = len(lists.begin) - 1
    owners = np.concatenate([np.repeat(np.arange(num), np.diff(lists.begin)), owner])
    pairs = np.unique(np.stack([owners, np.concatenate([lists.values, values])]), axis=1)
    return _lists(pairs[0], pairs[1], num)


def _lists(owner: Ints, values: Ints, num: int) -> Lists:
    """Lists from pairs that are sorted by owner."""
    return Lists(np.searchsorted(owner, np.arange(num + 1)).astype(np.int64), values.astype(np.int64))
