"""When receives are posted: the rules that `lowering.py` states, on arrays in the order of the sends on each link."""

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, SAVED, Costs
from penstock.program.job_table import JobTable
from penstock.program.seconds import durations
from penstock.program.types import Program

LEAD = 2
"""A receive is due as long before its consumer as the messages of this many micro-batches take on its link."""


def slot_before(
    needed_at: Ints, seconds: Floats, program: Program, costs: Costs, jobs: JobTable, slot_of: Ints
) -> Ints:
    """The last slot from which a device has at least these seconds of work before it reaches the given slots."""
    busy_s = np.zeros(int(program.num_actions + len(program.devices)))
    busy_s[slot_of] = durations(program, costs, jobs.replica)
    begin_s = np.cumsum(busy_s) - busy_s
    found = np.searchsorted(begin_s, begin_s[needed_at] - seconds, side="right") - 1
    return np.asarray(np.minimum(found, needed_at))


def slots_wanted(flow: Ints, used_at: Ints, earliest: Ints, ahead: Ints) -> Ints:
    """The first slot in which each receive can be posted; arrays in the order of the sends on each link.

    It counts the used messages of a flow, not which ones: they may be used in another order than they are sent.
    """
    by_flow = np.argsort(flow, kind="stable")
    grouped = flow[by_flow]
    first = np.searchsorted(grouped, np.arange(len(ahead)))[grouped]
    earlier = np.arange(len(flow)) - ahead[grouped]
    uses = used_at[np.lexsort((used_at, flow))]
    free = np.where(earlier >= first, uses[np.maximum(earlier, 0)] + 1, 0)
    wanted = np.empty(len(flow), dtype=np.int64)
    wanted[by_flow] = free
    return np.minimum(np.maximum(wanted, earliest), used_at)


def put_parameters_in_turn(wanted: Ints, link: Ints, rows: Ints) -> None:
    """Keep receives of returned weights on a link in order: none is posted before an earlier one."""
    latest: dict[int, int] = {}
    for row in rows.tolist():
        latest[int(link[row])] = wanted[row] = max(latest.get(int(link[row]), 0), int(wanted[row]))


def slots_posted(wanted: Ints, due: Ints, needed_at: Ints, what: Ints, link: Ints) -> Ints:
    """The slot in which each receive is posted, such that none on a link is before an earlier one."""
    is_small = (what == ACTIVATION) | (what == GRADIENT)
    large = np.where(is_small, np.maximum(due, wanted), np.where(what == SAVED, wanted, needed_at))
    latest = _earliest_from_here(large, link)
    small = _earliest_from_here(np.where(is_small, wanted, latest), link)
    alone = np.where(is_small, np.minimum(small, latest), np.minimum(wanted, latest))
    # All links at once: they are kept apart by a shift that grows with the link.
    shift = link * (int(alone.max()) + 1)
    return np.maximum.accumulate(alone + shift) - shift


def _earliest_from_here(wanted: Ints, link: Ints) -> Ints:
    """For each entry the minimum over it and all later entries on its link."""
    shift = link * (int(wanted.max()) + 1)
    return np.minimum.accumulate((wanted + shift)[::-1])[::-1] - shift


def receives_ahead(costs: Costs) -> Ints:
    """The number of messages of each flow that may be in flight or unused.

    Two, and more where the latency exceeds the time between two; of saved tensors as many as 1F1B has in flight.
    """
    flows = costs.flows
    bandwidth = costs.cluster.bandwidth[flows.source, flows.target]
    latency = costs.cluster.latency_s[flows.source, flows.target]
    consumer_s = np.where(
        flows.what == ACTIVATION, costs.forward_s[flows.target_replica], costs.input_grad_s[flows.target_replica]
    )
    period = np.maximum(flows.num_bytes / bandwidth, consumer_s)
    most = float(costs.num_microbatches)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        extra = np.where(latency > 0, np.minimum(np.ceil(latency / period), most), 0.0)
    ahead = 2 + np.nan_to_num(extra, nan=0.0).astype(np.int64)
    in_flight = costs.plan.num_stages - costs.replica_stage[flows.target_replica] + 1
    return np.where(flows.what == SAVED, np.maximum(ahead, in_flight), ahead)
