"""Pricing: from a plan, a profile and a cluster to the costs of the plan."""

from dataclasses import replace

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.cluster import Cluster
from penstock.errors import MismatchError
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.optimizer_shards import optimizer_shards
from penstock.plan.pricing.overheads import with_overheads
from penstock.plan.pricing.parameter_owners import held_bytes, ties_between
from penstock.plan.pricing.restrictions import find_restrictions
from penstock.plan.pricing.unit_seconds import Part, UnitClock
from penstock.plan.pricing.workspace import Replicas, working_bytes
from penstock.plan.types import Plan
from penstock.profile import Profile, fit


def price(
    plan: Plan, profile: Profile, cluster: Cluster, *, strict: bool = True, clock: UnitClock | None = None
) -> Costs:
    """Price a plan.

    Args:
        plan: The plan.
        profile: The profile that the plan was made for.
        cluster: The cluster that the plan was made for.
        strict: Whether to reject other profiles and clusters.
        clock: The seconds of the layers on the devices, where they are known; computed if they are for another
            micro-batch size.

    Returns:
        The costs of the plan's stages on its devices.

    Raises:
        MismatchError: The plan does not fit the profile or the cluster.
    """
    notes = _check_origin(plan, profile, cluster, strict)
    for name in plan.devices:
        if name not in cluster.index:
            hint = "Plan again for this cluster."
            raise MismatchError(f"the plan uses device {name!r}, which is not in the cluster", hint=hint)
    stages = plan.stages
    counts = np.array([stage.num_replicas for stage in stages])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    replica_stage = np.repeat(np.arange(len(stages)), counts)
    share = np.array([replica.share for stage in stages for replica in stage.forward])
    index = cluster.index
    forward_device = np.array([index[replica.device] for stage in stages for replica in stage.forward])
    backward_device = np.array([index[replica.device] for stage in stages for replica in stage.backward])
    if clock is None or not clock.is_for(profile, cluster, plan.micro_batch_size):
        clock = UnitClock(profile, cluster, plan.micro_batch_size)
    starts = np.array([stage.start for stage in stages])
    stops = np.array([stage.stop for stage in stages])

    def seconds(devices: Ints, part: Part) -> Floats:
        values = np.empty(len(share))
        for index, (device, portion, stage) in enumerate(zip(devices, share, replica_stage, strict=True)):
            sums = clock.prefix(int(device), float(portion), part)
            values[index] = sums[stops[stage]] - sums[starts[stage]]
        return values

    sizes = fit(profile, profile.kinds[0]).at(plan.micro_batch_size)
    cut = sizes.cut_bytes[stops - 1].copy()
    cut[-1] = 0.0
    first = profile.input_bytes * plan.micro_batch_size / profile.micro_batch_size
    grad = sizes.grad_bytes[stops - 1].copy()
    grad[-1] = 0.0
    parameter_bytes = _sums(sizes.parameter_bytes, starts, stops)
    trained_bytes = _sums(sizes.trained_bytes, starts, stops)
    ties = ties_between(profile, starts, parameter_bytes, only_trained=False)
    trained_ties = ties_between(profile, starts, trained_bytes, only_trained=True)
    trainers = set(zip(replica_stage.tolist(), backward_device.tolist(), strict=True))
    holders = trainers | set(zip(replica_stage.tolist(), forward_device.tolist(), strict=True))
    weight = held_bytes(cluster.num_devices, holders, parameter_bytes, ties)
    trained = held_bytes(cluster.num_devices, trainers, trained_bytes, trained_ties)
    sharded = np.array([stage.sharded_optimizer for stage in stages])
    shards = optimizer_shards(sharded, counts, trained_bytes, trained_ties)
    stepped = trained.copy()
    np.subtract.at(stepped, backward_device, shards.left_bytes[replica_stage])
    replicas = Replicas(starts, replica_stage, share, forward_device, backward_device)
    working = working_bytes(profile, cluster.num_devices, replicas, sizes, trained_bytes)
    costs = Costs(
        plan=plan,
        cluster=cluster,
        replica_offsets=offsets,
        replica_stage=replica_stage,
        share=share,
        forward_device=forward_device,
        backward_device=backward_device,
        forward_s=seconds(forward_device, "forward_s"),
        recompute_s=seconds(backward_device, "forward_s"),
        input_grad_s=seconds(backward_device, "input_grad_s"),
        weight_grad_s=seconds(backward_device, "weight_grad_s"),
        joined_s=np.zeros(len(share)),
        step_s=seconds(backward_device, "step_s") * shards.step_share[replica_stage],
        input_bytes=np.concatenate([[first], cut[:-1]]),
        output_bytes=cut,
        output_grad_bytes=grad,
        saved_bytes=_sums(sizes.saved_bytes, starts, stops),
        pending_bytes=_sums(sizes.pending_bytes, starts, stops),
        parameter_bytes=parameter_bytes,
        trained_bytes=trained_bytes,
        recompute=np.array([stage.recompute for stage in stages]),
        sharded=sharded,
        weight_bytes=weight,
        gradient_bytes=trained * profile.gradient_ratio,
        optimizer_bytes=stepped * profile.optimizer_ratio,
        work_bytes=working.all_the_time,
        more_at_step_bytes=working.more_at_step,
        copies_sent=np.zeros(cluster.num_devices, dtype=np.bool_),
        tied_bytes=trained_ties.num_bytes,
        tied_stages=trained_ties.stages,
        notes=(*notes, *clock.notes([*forward_device.tolist(), *backward_device.tolist()])),
        restrictions=find_restrictions(plan, profile),
    )
    costs = with_overheads(costs, clock)
    ends = (zip(devices.tolist(), share.tolist(), strict=True) for devices in (forward_device, backward_device))
    beyond = dict.fromkeys(clock.extrapolation(*end) for pairs in ends for end in dict.fromkeys(pairs))
    if any(beyond):
        costs = replace(costs, notes=(*costs.notes, *filter(None, beyond)))
    if not costs.has_whole_rows:
        text = f"replicas get fractional rows of a micro-batch of {plan.micro_batch_size}: times assume divisible rows"
        costs = replace(costs, notes=(*costs.notes, text))
    return costs


def _sums(values: Floats, starts: Ints, stops: Ints) -> Floats:
    running = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(running[stops] - running[starts])


def _check_origin(plan: Plan, profile: Profile, cluster: Cluster, strict: bool) -> list[str]:
    if plan.num_units != profile.num_units:
        raise MismatchError(
            f"the plan covers {plan.num_units} layers, but the profile {profile.name!r} has {profile.num_units}",
            hint=f"The plan was made for {plan.profile.name!r}: plan again for this one.",
        )
    notes = []
    for what, origin, digest in (("profile", plan.profile, profile.digest), ("cluster", plan.cluster, cluster.digest)):
        if origin.digest != digest:
            text = f"the plan was made for another {what}: {origin.name!r} ({origin.digest}), not for {digest}"
            if strict:
                hint = f"Use the {what} that the plan was made for, plan again, or accept the difference with --force."
                raise MismatchError(text, hint=hint)
            notes.append(text)
    return notes
