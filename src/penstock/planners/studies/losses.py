"""Losses: the single losses of a cluster, and the plan for what remains after any loss.

A plan for what remains names the whole cluster, whose lost devices stay idle, so it needs no other cluster file.
"""

from collections.abc import Collection
from typing import NamedTuple, cast

from penstock.cluster import Cluster, select_devices
from penstock.errors import InputError, PenstockError
from penstock.plan import Plan
from penstock.planners.api import DEFAULT_PLANNER, Options, solve
from penstock.planners.registry import PLANNERS
from penstock.planners.studies.device_counts import retarget_to_cluster
from penstock.profile import Profile
from penstock.simulate import Evaluation, evaluate


class Loss(NamedTuple):
    """Devices that are lost together."""

    name: str
    """The device or the host."""
    devices: frozenset[str]
    is_host: bool = False


def single_losses(cluster: Cluster, lost: Collection[str] = ()) -> list[Loss]:
    """The single losses of a cluster: every device, and every host with several devices, that is not lost yet.

    The last devices that remain are not a loss that training can survive, and are left out.

    Args:
        cluster: The cluster.
        lost: Devices that are lost already.

    Example:
        >>> from penstock.cluster import load_cluster
        >>> [loss.name for loss in single_losses(load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s"), ["h0.d1"])]
        ['h0.d0', 'h1.d0', 'h1.d1', 'h1']
    """
    remaining = [device for device in cluster.devices if device.name not in lost]
    losses = [Loss(device.name, frozenset((device.name,))) for device in remaining]
    for host in cluster.hosts:
        own = frozenset(device.name for device in remaining if device.host == host.name)
        if len(own) > 1:
            losses.append(Loss(host.name, own, is_host=True))
    return [loss for loss in losses if len(loss.devices) < len(remaining)]


def plan_without(
    plan: Plan, profile: Profile, cluster: Cluster, lost: Collection[str], **options: object
) -> Evaluation:
    """Plan for the devices that remain after a loss: priced, ordered, proved and simulated on the whole cluster.

    The plan has the micro-batches of the plan before the loss, so that training goes on with the same batches. It is
    made by the same planner, or by auto if that planner is not known or finds none.

    Args:
        plan: The plan for the whole cluster.
        profile: The profile.
        cluster: The whole cluster.
        lost: The names of the devices that are lost.
        **options: More options of the planner, such as `work`.

    Raises:
        InputError: No device remains, or a lost device is not in the cluster.
        PenstockError: No plan for these devices fits.
    """
    unknown = sorted(set(lost) - cluster.index.keys())
    if unknown:
        raise InputError(f"the cluster has no device {unknown[0]!r}")
    positions = [position for position, device in enumerate(cluster.devices) if device.name not in lost]
    if not positions:
        raise InputError("no device remains")
    part = select_devices(cluster, positions)
    common = {
        "micro_batch_size": plan.micro_batch_size,
        "profile_source": plan.profile.source,
        "cluster_source": plan.cluster.source,
        **options,
    }
    attempts: list[dict[str, object]] = [{"planner": DEFAULT_PLANNER}]
    if plan.planner in PLANNERS and plan.planner != DEFAULT_PLANNER:
        rest = {"planner": plan.planner, "schedule": plan.schedule, "split_backward": plan.split_backward}
        attempts.insert(0, {name: value for name, value in rest.items() if value})
    for number, attempt in enumerate(attempts):
        chosen = {**common, **attempt}
        if chosen["planner"] != DEFAULT_PLANNER:
            chosen = {name: value for name, value in chosen.items() if name not in ("work", "seed")}
        try:
            found = solve(profile, part, plan.num_microbatches, **cast("Options", chosen)).plan
            found = retarget_to_cluster(found, cluster, plan.cluster.source)
            return evaluate(found, profile, cluster)
        except PenstockError:
            if number == len(attempts) - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
