"""`Costs`: a priced plan, as arrays of seconds and bytes.

A *replica* is one device of a stage's group: it has a forward device, a backward device and a share of the rows.
Replicas are numbered stage by stage; `replica_offsets[k]` is the first replica of stage k. Lowering, proof and
simulation read these arrays and no profile.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.cluster import Cluster
from penstock.plan.message_model import OVERLAPPED, MessageModel
from penstock.plan.pricing.allreduce_ring import Ring, reduce_ring, ring_in_order
from penstock.plan.pricing.flows import Flows, find_flows
from penstock.plan.pricing.restrictions import NO_RESTRICTIONS, PlanRestrictions
from penstock.plan.types import Plan


@dataclass(frozen=True)
class Collective:
    """A transfer over a ring of devices.

    It is a reduction of the gradients of one replicated stage, or of parameters that several stages share, or the
    all-gather of a stage's parameters after its optimizer step. With a sharded optimizer, the reduction of a stage is
    a reduce-scatter, otherwise an all-reduce.
    """

    is_tie: bool
    number: int
    """The stage, or the tie."""
    stages: tuple[int, ...]
    """The stages whose optimizer step waits for it; none for an all-gather."""
    ring: Ring
    is_gather: bool = False


@dataclass(frozen=True, eq=False)
class Costs:
    """The costs of a plan on a cluster.

    Arrays over replicas end in `_s` or `_device`. Arrays over stages end in `_bytes`, unless a comment says otherwise.
    """

    plan: Plan
    cluster: Cluster
    replica_offsets: Ints
    replica_stage: Ints
    share: Floats
    forward_device: Ints
    backward_device: Ints
    forward_s: Floats
    recompute_s: Floats
    input_grad_s: Floats
    weight_grad_s: Floats
    joined_s: Floats
    """Seconds that a fused backward saves over I and W."""
    step_s: Floats
    input_bytes: Floats
    output_bytes: Floats
    output_grad_bytes: Floats
    """Gradients of the output: none if no parameter up to this stage is trained."""
    saved_bytes: Floats
    pending_bytes: Floats
    parameter_bytes: Floats
    trained_bytes: Floats
    """Trained parameters: those with gradients and optimizer state."""
    recompute: npt.NDArray[np.bool_]
    sharded: npt.NDArray[np.bool_]
    """Over stages: whether the replicas share the optimizer state."""
    weight_bytes: Floats
    """Over devices: weights, every copy that a device holds, shared parameters once."""
    gradient_bytes: Floats
    optimizer_bytes: Floats
    work_bytes: Floats
    """Over devices: workspace of passes."""
    more_at_step_bytes: Floats
    """Over devices: additional workspace of the optimizer step."""
    copies_sent: npt.NDArray[np.bool_]
    """Over devices: whether messages to the same host are copied when they are sent."""
    tied_bytes: tuple[float, ...]
    """Over trained parameters that several stages share."""
    tied_stages: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]
    restrictions: PlanRestrictions = NO_RESTRICTIONS
    """What the layers require of the plan."""
    ring_orders: tuple[tuple[int, ...], ...] = ()
    """The devices of each reduction in the order of its ring, as in `reductions`; empty: the fastest orders."""

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return len(self.share)

    @property
    def num_devices(self) -> int:
        """The number of devices of the cluster, used or not."""
        return self.cluster.num_devices

    @property
    def num_microbatches(self) -> int:
        """The number of micro-batches of an iteration."""
        return self.plan.num_microbatches

    @property
    def messages(self) -> MessageModel:
        """How devices wait for their messages."""
        model = self.plan.messages or OVERLAPPED
        if model.overlaps_chunks and self.has_chunks:
            return OVERLAPPED
        return model

    @cached_property
    def has_chunks(self) -> bool:
        """Whether a device has several stages."""
        return any(len(set(devices.tolist())) < len(devices) for devices in (self.forward_device, self.backward_device))

    @cached_property
    def has_whole_rows(self) -> bool:
        """Whether every device's share of a micro-batch is a whole number of rows."""
        rows = self.share * self.plan.micro_batch_size
        return bool(np.allclose(rows, np.round(rows), rtol=0, atol=1e-6))

    @cached_property
    def forward_replicas(self) -> Ints:
        """Over pairs (device, stage), device by device: the replica whose forward the device runs, or -1."""
        return replicas_by_device(self.forward_device, self.replica_stage, self.num_devices, len(self.recompute))

    @cached_property
    def backward_replicas(self) -> Ints:
        """Over pairs (device, stage), device by device: the replica whose backward the device runs, or -1."""
        return replicas_by_device(self.backward_device, self.replica_stage, self.num_devices, len(self.recompute))

    @cached_property
    def backward_s(self) -> Floats:
        """Over replicas: seconds of a fused backward."""
        return self.input_grad_s + self.weight_grad_s - self.joined_s

    @cached_property
    def kept_bytes(self) -> Floats:
        """Over stages: bytes that the forward keeps until the backward or the recompute starts."""
        return np.where(self.recompute, self.input_bytes, self.saved_bytes)

    @cached_property
    def static_bytes(self) -> Floats:
        """Over devices: bytes that are held all the time."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes + self.work_bytes

    @cached_property
    def memory_limit(self) -> Floats:
        """Over devices: bytes, or inf where no limit is known."""
        limits = [device.memory_bytes for device in self.cluster.devices]
        return np.array([np.inf if limit is None else float(limit) for limit in limits])

    def over_bytes(self, peak_bytes: Floats) -> Floats:
        """Over devices: bytes by which a peak exceeds the limit; less than half a byte is rounding."""
        over = peak_bytes - self.memory_limit
        return np.where(over > 0.5, over, 0.0)

    @cached_property
    def delay_s(self) -> Floats:
        """Over flows: seconds of a message on an idle link."""
        ends = self.flows.source, self.flows.target
        return np.asarray(self.cluster.latency_s[ends] + self.flows.num_bytes / self.cluster.bandwidth[ends])

    @cached_property
    def leaves_at_once(self) -> npt.NDArray[np.bool_]:
        """Over flows: whether the sender frees the message as soon as it is sent."""
        host = self.cluster.host_index
        within = host[self.flows.source] == host[self.flows.target]
        return np.asarray(within & self.copies_sent[self.flows.source])

    @cached_property
    def flows(self) -> Flows:
        """The flows between devices."""
        return find_flows(self)

    @cached_property
    def reductions(self) -> tuple[Collective, ...]:
        """The reductions of gradients at the end of an iteration: replicated stages first, then ties."""
        tied = np.zeros(len(self.trained_bytes))
        ties = []
        for number, (size, stages) in enumerate(zip(self.tied_bytes, self.tied_stages, strict=True)):
            replicas = [self.replicas(stage) for stage in stages]
            holders = sorted({int(device) for span in replicas for device in self.backward_device[span]})
            tied[list(stages)] += size
            if len(holders) > 1:
                ties.append(Collective(True, number, stages, reduce_ring(self.cluster, holders, size)))
        found = []
        for stage in range(len(self.trained_bytes)):
            devices = self.backward_device[self.replicas(stage)]
            if len(devices) > 1:
                size = float(self.trained_bytes[stage] - tied[stage])
                ring = reduce_ring(self.cluster, [int(device) for device in devices], size)
                found.append(Collective(False, stage, (stage,), ring.half if self.sharded[stage] else ring))
        if not self.ring_orders:
            return tuple(found + ties)
        return tuple(
            replace(item, ring=ring_in_order(self.cluster, order, item.ring, is_half=self._is_half(item)))
            for item, order in zip(found + ties, self.ring_orders, strict=True)
        )

    def _is_half(self, item: Collective) -> bool:
        """Whether a reduction is a reduce-scatter."""
        return not item.is_tie and bool(self.sharded[item.number])

    @cached_property
    def gathers(self) -> tuple[Collective, ...]:
        """The all-gathers of parameters after the steps of sharded optimizers."""
        return tuple(
            Collective(False, item.number, (), item.ring, is_gather=True)
            for item in self.reductions
            if not item.is_tie and self.sharded[item.number]
        )

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """All reductions, then all all-gathers."""
        return self.reductions + self.gathers

    def replicas(self, stage: int) -> slice:
        """The replicas of a stage."""
        return slice(int(self.replica_offsets[stage]), int(self.replica_offsets[stage + 1]))


def replicas_by_device(device: Ints, replica_stage: Ints, num_devices: int, num_stages: int) -> Ints:
    """Over pairs (device, stage), device by device: the replica that the device runs, or -1.

    `device` holds the device of each replica; a negative one is unknown.
    """
    table = np.full(num_devices * num_stages, -1, dtype=np.int64)
    known = np.flatnonzero(device >= 0)
    table[device[known] * num_stages + replica_stage[known]] = known
    return table
