"""PE: every device runs the earliest available micro-batch, backwards before forwards.

    device 0   F0 F1 F2 F3 .  B0 .  B1 .  B2 .  B3
    device 1   .  F0 F1 F2 B0 F3 B1 .  B2 .  B3
    device 2   .  .  F0 B0 F1 B1 F2 B2 F3 B3            (F and B drawn equally long)

Passes start one by one in the order of time, with real seconds, and transfers queue for their link: an idle device runs
the backward of the earliest micro-batch whose input has arrived, else a forward. Unlike in 1F1B, the order follows from
the costs, so unequal stages and slow links do not delay passes that could run.

The greedy order is the paper's. Added here: any map of stages, also several per device and remote backwards; a limit,
without which a fast first stage would run all its forwards at once and keep them, as in GPipe. From stage s of S on
there are S - s stages and S - s - 1 channels with two directions, and each can be busy with one micro-batch: so
3 (S - s) - 2 micro-batches may be between the start of their forward and the end of their backward on s, plus those in
flight during the latencies of these channels, one for each span of the slowest pass or transfer. The limit never delays
the earliest unfinished micro-batch, so one can always run; and as the orders are those of one run, in which every pass
comes after its dependencies, they cannot deadlock.

With C the longest time that a stage (F and B) or a channel (there and back, latency included) needs for one
micro-batch, the paper bounds the iteration by (M + 4 S - 4) C plus the largest all-reduce. tests/schedules/test_pe.py
checks that on random plans without ties, optimizer steps, remote backwards and shared interfaces, which the bound
leaves out.
Cost: O(jobs log jobs).

Reference: Luo et al., Efficient Pipeline Planning for Expedited Distributed DNN Training, 2022.
"""

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, Costs
from penstock.program import FORWARD, NONE, Kind, Program, find_pass_edges, program_from_arrays


def pe(costs: Costs) -> Program:
    """The earliest available micro-batch, backwards first."""
    track, microbatch = _start_order(costs)
    replica, is_backward = track >> 1, (track & 1).astype(bool)
    device = np.where(is_backward, costs.backward_device[replica], costs.forward_device[replica])
    order = np.argsort(device, kind="stable")
    replica, microbatch, is_backward, device = (values[order] for values in (replica, microbatch, is_backward, device))
    again = is_backward & costs.recompute[costs.replica_stage[replica]]
    split = costs.plan.split_backward
    # Each start stands for one action, or for up to three: R before a backward, and its parts I and W.
    parts = 1 + again.astype(np.int64) + (is_backward & split)
    stop = np.cumsum(parts)
    kind = np.full(int(stop[-1]), Kind.F, dtype=np.int8)
    kind[(stop - parts)[again]] = Kind.R
    kind[stop[is_backward] - 1] = Kind.W if split else Kind.B
    if split:
        kind[stop[is_backward] - 2] = Kind.I
    counts = np.bincount(device, weights=parts, minlength=costs.num_devices).astype(np.int64)
    names = [item.name for item in costs.cluster.devices]
    stage = np.repeat(costs.replica_stage[replica], parts)
    return program_from_arrays(costs.plan, names, counts, kind, stage, np.repeat(microbatch, parts))


def most_in_flight(costs: Costs) -> list[int]:
    """Over stages: the number of micro-batches between the start of their forward and the end of their backward."""
    num_stages, num = costs.plan.num_stages, costs.num_microbatches
    occupancy_s, latency_s = _links(costs)
    flows = costs.flows
    work = costs.forward_s + costs.backward_s
    slowest = max(float(work.max()), float(occupancy_s.max(initial=0.0)))
    latency = np.zeros((2, num_stages + 1))
    for side, what in enumerate((ACTIVATION, GRADIENT)):
        chosen = flows.what == what
        ends = costs.replica_stage[flows.source_replica[chosen]], costs.replica_stage[flows.target_replica[chosen]]
        np.maximum.at(latency[side], np.minimum(*ends), latency_s[chosen])
    both = np.cumsum(latency.sum(axis=0)[::-1])[::-1]
    limits = []
    for stage in range(num_stages):
        limit = 3 * (num_stages - stage) - 2
        under_way = float(both[stage])
        if under_way > 0:
            limit += num if slowest * num <= under_way else int(np.ceil(under_way / slowest))
        limits.append(min(limit, num))
    return limits


def _links(costs: Costs) -> tuple[Floats, Floats]:
    """How long each flow holds its link, and its latency; a shared interface counts as if it were not shared."""
    cluster, flows = costs.cluster, costs.flows
    rate = cluster.bandwidth[flows.source, flows.target]
    given = [host.interface_bandwidth for host in cluster.hosts]
    limit = np.array([np.inf if bandwidth is None else bandwidth for bandwidth in given])
    homes = cluster.host_index[flows.source], cluster.host_index[flows.target]
    shared = np.minimum(rate, np.minimum(limit[homes[0]], limit[homes[1]]))
    rate = np.where(homes[0] == homes[1], rate, shared)
    return flows.num_bytes / rate, cluster.latency_s[flows.source, flows.target]


def _start_order(costs: Costs) -> tuple[Ints, Ints]:
    """The tracks (2 * replica, plus 1 for its backward) and micro-batches in the order of their starts."""
    from penstock.schedules.methods.pe_kernel import Sends, Tracks, run_greedily

    num_tracks = 2 * costs.num_replicas
    device = np.stack([costs.forward_device, costs.backward_device], axis=1).ravel()
    again = np.where(costs.recompute[costs.replica_stage], costs.recompute_s, 0.0)
    backward_s = again + costs.backward_s
    until_sent = again + costs.input_grad_s if costs.plan.split_backward else backward_s
    numbers = np.arange(num_tracks)
    # Of the same micro-batch, later stages first: they are nearer to what others wait for.
    held = np.lexsort((-numbers, -(numbers & 1), device))
    edges = find_pass_edges(costs)
    source, target = (_tracks_of(passes, costs.num_replicas) for passes in (edges.source, edges.target))
    # The passes of a backward follow each other within its track.
    order = np.argsort(source, kind="stable")
    order = order[source[order] != target[order]]
    line = costs.flows.source * costs.num_devices + costs.flows.target
    occupancy_s, latency_s = _links(costs)
    tracks = Tracks(
        device=device,
        until_sent=np.stack([costs.forward_s, until_sent], axis=1).ravel(),
        seconds=np.stack([costs.forward_s, backward_s], axis=1).ravel(),
        limit=np.array(most_in_flight(costs), dtype=np.int64)[costs.replica_stage],
        held_begin=np.searchsorted(device[held], np.arange(costs.num_devices + 1)),
        held=held,
        num_needs=np.bincount(target[order], minlength=num_tracks),
    )
    sends = Sends(
        begin=np.searchsorted(source[order], np.arange(num_tracks + 1)),
        line=edges.of_flows(line, NONE)[order],
        target=target[order],
        occupancy=edges.of_flows(occupancy_s, 0.0)[order],
        latency=edges.of_flows(latency_s, 0.0)[order],
    )
    started = run_greedily(costs.num_microbatches, tracks, sends, costs.num_devices**2)
    return started[0], started[1]


def _tracks_of(passes: Ints, num_replicas: int) -> Ints:
    """The track of each pass: all but forwards are in the backward's."""
    kind, replica = np.divmod(passes, num_replicas)
    return np.asarray(2 * replica + (kind != FORWARD))
