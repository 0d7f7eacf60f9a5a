"""Lower bounds on the iteration time. The gap between a plan and its bound limits what a better plan could gain.

The bounds hold for every plan and every order of its actions: any groups and shares, local and remote backwards,
several stages per device, recomputation. With `replication` off they are tighter, and hold for plans without
replication; with `remote_backward` off, for plans whose forward and backward groups are the same; with
`sharded_optimizer` off, for plans whose replicas all have the whole optimizer state. The proofs are in the docstrings
of `work.py`, `chain.py` and `network.py`, and without replication also of `packing.py` and `unreplicated.py`.
The bounds ignore memory limits, and count reductions only where they must cross between parts of the cluster.
Shares sum to 1 within 1e-9 (plan/types.py); the bounds hold with that tolerance.

The parts `together` and `network` start from the largest of the parts before them, and repeat it if they find nothing
better.

Cost: O(layers devices) for each of some hundred prices, O(layers^2) for each of some hundred candidate times, and
without replication O(layers devices^2 + layers^2 devices) for each of some dozens. Parts that would take too long are
skipped.
"""

import msgspec

from penstock.cluster import Cluster
from penstock.planners.bounds.chain import chain_bound, shortest_paths
from penstock.planners.bounds.network import network_bound
from penstock.planners.bounds.packing import packing_bound
from penstock.planners.bounds.unit_seconds import UnitTimes, unit_times
from penstock.planners.bounds.unreplicated import unreplicated_bound
from penstock.planners.bounds.work import fill_bound, least_waits, work_bound
from penstock.planners.problem import Problem
from penstock.profile import Profile

WORK = "all work, divided optimally over all devices"
CHAIN = "one micro-batch through all layers and back, with all micro-batches through the slowest action on that path"
FILL = "all work, and the idle time of devices before their first and after their last micro-batch"
PACKING = "indivisible work, packed onto the devices"
NETWORK = "each part of the cluster does its own work, or exchanges activations or parameters with other parts"
TOGETHER = "layers stay on devices whose links are fast enough for the activations between them"


class BoundPart(msgspec.Struct, frozen=True):
    """One bound, and the reason for it.

    Attributes:
        name: Short name, such as `work` or `network`.
        seconds: The bound on the iteration time.
        why: The reason in words.
    """

    name: str
    seconds: float
    why: str


class Bound(msgspec.Struct, frozen=True):
    """The largest of several bounds on the iteration time.

    Attributes:
        seconds: The largest bound.
        reason: The reason for it in words.
        parts: All bounds.
    """

    seconds: float
    reason: str
    parts: tuple[BoundPart, ...]


def binding_part(bound: Bound) -> BoundPart:
    """The part that gives the bound: the largest."""
    return max(bound.parts, key=lambda part: part.seconds)


def gap_to_bound(bound: Bound, iteration_s: float) -> float | None:
    """How far an iteration time is above a bound; see `relative_gap`."""
    return relative_gap(iteration_s, bound.seconds)


def relative_gap(iteration_s: float, bound_s: float) -> float | None:
    """How far an iteration time is above its lower bound, as a fraction of the bound.

    Args:
        iteration_s: Seconds of an iteration.
        bound_s: The lower bound in seconds.

    Returns:
        0.25 for an iteration that takes 25 % longer than the bound. None where the bound is 0.

    >>> relative_gap(5.0, 4.0)
    0.25
    """
    return iteration_s / bound_s - 1 if bound_s > 0 else None


def lower_bound(
    profile: Profile,
    cluster: Cluster,
    num_microbatches: int,
    micro_batch_size: int | None = None,
    *,
    replication: bool = True,
    remote_backward: bool = True,
    sharded_optimizer: bool = True,
) -> Bound:
    """Compute a lower bound on the iteration time of every plan.

    Args:
        profile: The model's profile.
        cluster: The devices and links.
        num_microbatches: Micro-batches per iteration.
        micro_batch_size: Rows of a micro-batch; the profile's own size if None.
        replication: Whether plans may replicate stages. If False, the bound covers only plans whose groups have one
            device.
        remote_backward: Whether a stage's backward may be on another device than its forward. If False, the bound
            covers only plans whose forward and backward groups are the same.
        sharded_optimizer: Whether replicas may share the optimizer state. If False, the bound covers only plans whose
            replicas run the whole optimizer step.

    Returns:
        The bound with its parts.

    Raises:
        InputError: If the number or the size of the micro-batches is out of range.

    Example:
        >>> from penstock.cluster.load import load_cluster
        >>> from penstock.profile.load import load_profile
        >>> bound = lower_bound(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s"), 8)
        >>> [part.name for part in bound.parts]
        ['work', 'chain', 'network']
    """
    problem = Problem(profile, cluster, num_microbatches, micro_batch_size=micro_batch_size)
    times = unit_times(problem, replication=replication)
    sharded_optimizer = sharded_optimizer and replication
    if replication:
        parts = _replicated_parts(times, remote_backward, sharded_optimizer)
    else:
        parts = _unreplicated_parts(times, remote_backward)
    if sharded_optimizer:
        times = times.with_step_share(0.0)
    parts.append(BoundPart("network", network_bound(times, _largest(parts), remote_backward=remote_backward), NETWORK))
    largest = max(parts, key=lambda part: part.seconds)
    return Bound(largest.seconds, largest.why, tuple(parts))


def _replicated_parts(times: UnitTimes, remote_backward: bool, sharded_optimizer: bool) -> list[BoundPart]:
    work_s = work_bound(times, remote_backward=remote_backward, sharded_optimizer=sharded_optimizer)
    in_chain = times.with_step_share(1 / times.cluster.num_devices) if sharded_optimizer else times
    return [
        BoundPart("work", work_s, WORK),
        BoundPart("chain", chain_bound(in_chain, replication=True, remote_backward=remote_backward), CHAIN),
    ]


def _unreplicated_parts(times: UnitTimes, remote_backward: bool) -> list[BoundPart]:
    paths = shortest_paths(times)
    parts = [
        BoundPart("work", work_bound(times, remote_backward=remote_backward), WORK),
        BoundPart("chain", chain_bound(times, replication=False, remote_backward=remote_backward), CHAIN),
        BoundPart("fill", fill_bound(times, paths, remote_backward=remote_backward), FILL),
        BoundPart("packing", packing_bound(times, least_waits(times, paths), remote_backward=remote_backward), PACKING),
    ]
    together = unreplicated_bound(
        times,
        _largest(parts),
        lambda some: _largest(_unreplicated_parts(some, remote_backward)),
        remote_backward=remote_backward,
    )
    return [*parts, BoundPart("together", together, TOGETHER)]


def _largest(parts: list[BoundPart]) -> float:
    return max(part.seconds for part in parts)
