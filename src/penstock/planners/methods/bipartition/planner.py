"""Bi-Partition: different cuts for the forward and for the backward, which balance their sums better.

Stage k runs the forward of layers p[k] up to p[k + 1] and the backward of layers q[k] up to q[k + 1]. Both are chosen
together to minimize the largest F(p[k], p[k + 1]) + B(q[k], q[k + 1]). A layer between p and q has a remote backward.

The idea is the paper's. The searches are added here: cuts.py is exact for compute alone, on devices of any speed;
priced_cuts.py includes all transfers between two stages, over links of any speed and shared interfaces, and may
recompute instead of transferring saved tensors. The planner simulates the results for several prices of the transfers,
together with `balanced`, under the problem's schedule, and returns the fastest: never worse than balanced. Every stage
has the seconds of its own device. If all layers are alike, there is little to gain, and the result is balanced's cuts.

Cost: O(stages layers^2) for each of some dozen bottlenecks and each price, and one simulation for each price. Beyond
`MAX_CUTS` layers, the planner considers only that many cuts, evenly spread over the work.

Reference: Cui et al., A bidirectional DNN partition mechanism for efficient pipeline parallel training in cloud, 2023.

>>> from penstock.planners.methods.bipartition.cuts import two_sets_of_cuts
>>> two_sets_of_cuts([np.array([0.0, 1, 2, 3])] * 2, [np.array([0.0, 1, 2, 3])] * 2)  # 3 and 3, not 4 and 2
TwoSets(forward=[0, 1, 3], backward=[0, 2, 3])
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf

import msgspec
import numpy as np

from penstock.arrays import Ints
from penstock.cluster import Cluster
from penstock.errors import ProofError
from penstock.plan import Plan, Shape, Stage, on
from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.bipartition.cuts import bottleneck, two_sets_of_cuts
from penstock.planners.methods.bipartition.priced_cuts import Joint, Row, priced_cuts
from penstock.planners.problem import Problem
from penstock.profile import fit
from penstock.simulate import evaluate

TRANSFER_WEIGHTS = (0.25, 1.0, 4.0, np.inf)
"""Weights of the transfers for remote backwards. They overlap with compute, so their true weight is unknown."""
MAX_CUTS = 160


def bipartition(problem: Problem, *, recomputation: bool = True, part_recomputation: bool = True) -> Plan:
    """Plan with two sets of cuts at several transfer prices, and with balanced; return the fastest in simulation.

    Without `recomputation` or `part_recomputation`, only the problem itself determines whether stages recompute.
    """
    plans = two_set_plans(problem)
    if not (recomputation and part_recomputation):
        plans = [plan for plan in plans if all(stage.recompute == problem.recompute for stage in plan.stages)]
    return min(plans, key=lambda plan: _iteration_s(problem, plan))


def two_set_plans(problem: Problem) -> list[Plan]:
    """The candidates of bipartition, each once: balanced, and two sets of cuts at several transfer prices."""
    plans = [msgspec.structs.replace(balanced(problem), planner="bipartition")]
    devices = _stage_devices(problem)
    cuts = _candidates(problem, devices)
    row = _row(problem, devices, cuts)
    free = two_sets_of_cuts(row.forward, row.backward)
    choices = [[Joint(p, q, recompute) for p, q in zip(*free, strict=True)] for recompute in (0, 1)]
    least = bottleneck(row.forward, row.backward, free)
    choices += [priced_cuts(row, weight, at_least_s=least) for weight in TRANSFER_WEIGHTS]
    for joints in choices:
        plan = _plan(problem, devices, [Joint(int(cuts[p]), int(cuts[q]), recompute) for p, q, recompute in joints])
        if all(plan.stages != other.stages for other in plans):
            plans.append(plan)
    return plans


def _iteration_s(problem: Problem, plan: Plan) -> float:
    """Simulated seconds; infinite for a plan that training refuses."""
    try:
        return evaluate(plan, problem.profile, problem.cluster, within_memory=False).timeline.iteration_s
    except ProofError:
        return inf


def _stage_devices(problem: Problem) -> list[int]:
    """The device of each stage; a straight pipeline uses up to two devices per layer, one for each direction."""
    if problem.shape is not Shape.STRAIGHT or problem.pipeline_depth is not None:
        return problem.stage_devices
    return list(range(min(problem.cluster.num_devices, 2 * problem.profile.num_units)))


def _candidates(problem: Problem, devices: Sequence[int]) -> Ints:
    """The cuts to consider: all, or cuts that divide the work of a device evenly."""
    num_units = problem.profile.num_units
    if num_units <= MAX_CUTS:
        return np.arange(num_units + 1)
    work = problem.clock.work(devices[0]) + np.linspace(0.0, 1e-9, num_units + 1)
    even = np.searchsorted(work, np.linspace(0.0, work[-1], MAX_CUTS + 1))
    return np.unique(np.concatenate([[0], np.minimum(even, num_units), [num_units]]))


def _row(problem: Problem, devices: Sequence[int], cuts: Ints) -> Row:
    clock, rows = problem.clock, problem.rows_per_microbatch
    sizes = fit(problem.profile, problem.profile.kinds[0]).at(rows)
    crossing = np.concatenate([[0.0], sizes.cut_bytes])
    crossing[-1] = 0.0
    inputs = crossing.copy()
    inputs[0] = problem.profile.input_bytes * rows / problem.profile.micro_batch_size
    return Row(
        forward=[clock.prefix(device, 1.0, "forward_s")[cuts] for device in devices],
        backward=[(clock.work(device) - clock.prefix(device, 1.0, "forward_s"))[cuts] for device in devices],
        rates=[
            (rate_between(problem.cluster, a, b), rate_between(problem.cluster, b, a)) for a, b in pairwise(devices)
        ],
        cut_bytes=crossing[cuts],
        input_bytes=inputs[cuts],
        saved_bytes=np.concatenate([[0.0], np.cumsum(sizes.saved_bytes)])[cuts],
        parameter_bytes=np.concatenate([[0.0], np.cumsum(sizes.trained_bytes)])[cuts] / problem.num_microbatches,
    )


def rate_between(cluster: Cluster, source: int, target: int) -> float:
    """Bytes per second from one device to another, limited by the interfaces of their hosts."""
    rate = float(cluster.bandwidth[source, target])
    hosts = cluster.host_index[[source, target]]
    if hosts[0] != hosts[1]:
        for host in hosts:
            rate = min(rate, cluster.hosts[host].interface_bandwidth or np.inf)
    return rate


def _plan(problem: Problem, devices: Sequence[int], joints: Sequence[Joint]) -> Plan:
    """The plan whose stages are the runs between all cuts."""
    stops = sorted({cut for joint in joints for cut in joint[:2]})
    names = [problem.cluster.devices[device].name for device in devices]
    recomputed_spans = [(min(joint[:2]), max(joint[:2])) for joint in joints if joint.recompute]
    stages = []
    for start, stop in pairwise(stops):
        forward = on(names[sum(joint.p <= start for joint in joints) - 1])
        backward = on(names[sum(joint.q <= start for joint in joints) - 1])
        recompute = problem.recompute or (
            forward != backward and any(first <= start < last for first, last in recomputed_spans)
        )
        stages.append(Stage(start=start, stop=stop, forward=forward, backward=backward, recompute=recompute))
    plain = problem.plan("bipartition", [0, problem.profile.num_units], [stages[0].forward])
    return msgspec.structs.replace(plain, stages=tuple(stages))
