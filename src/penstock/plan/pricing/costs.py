"""The price of a plan: its stages' seconds and bytes on its devices, as arrays.

A *place* is one member of one stage: it has a forward device, a backward device and a share of the rows. Places
are numbered stage by stage; `place_offsets[k]` is the first place of stage k. All downstream code (lowering,
proof, simulation) reads these arrays and knows nothing of profiles any more.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.cluster import Cluster
from penstock.plan.pricing.allreduce_ring import Ring, reduce_ring
from penstock.plan.pricing.flows import Flows, find_flows
from penstock.plan.types import Plan


@dataclass(frozen=True)
class Reduction:
    """An all-reduce of gradients: of one replicated stage, or of parameters that several stages share."""

    is_tie: bool
    number: int
    """The stage, or the tie, that it is of."""
    stages: tuple[int, ...]
    """The stages whose optimizer step waits for it."""
    ring: Ring


@dataclass(frozen=True, eq=False)
class Costs:
    """What a plan costs on a cluster. Arrays over places end in _s or _device; arrays over stages in _bytes."""

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
    """What a backward in one job takes less than I and W together."""
    step_s: Floats
    input_bytes: Floats
    output_bytes: Floats
    saved_bytes: Floats
    pending_bytes: Floats
    parameter_bytes: Floats
    recompute: npt.NDArray[np.bool_]
    weight_bytes: Floats
    """Over devices: weights, every copy that a device holds, shared parameters once."""
    gradient_bytes: Floats
    optimizer_bytes: Floats
    work_bytes: Floats
    """What jobs need for themselves at any time."""
    more_at_step_bytes: Floats
    """What the optimizer's step needs beyond that."""
    copies_sent: npt.NDArray[np.bool_]
    """Over devices: whether it copies what it sends for whoever gets it, if that is on the same host."""
    tied_bytes: tuple[float, ...]
    tied_stages: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]

    @property
    def num_replicas(self) -> int:
        """How many places there are."""
        return len(self.share)

    @property
    def num_devices(self) -> int:
        """How many devices the cluster has, used or not."""
        return self.cluster.num_devices

    @property
    def num_microbatches(self) -> int:
        """How many micro-batches an iteration has."""
        return self.plan.num_microbatches

    @cached_property
    def has_whole_rows(self) -> bool:
        """Whether every device's share of a micro-batch is a whole number of rows."""
        rows = self.share * self.plan.micro_batch_size
        return bool(np.allclose(rows, np.round(rows), rtol=0, atol=1e-6))

    @cached_property
    def backward_s(self) -> Floats:
        """Over places: input and weight gradients in one job."""
        return self.input_grad_s + self.weight_grad_s - self.joined_s

    @cached_property
    def kept_bytes(self) -> Floats:
        """Over stages: what the forward keeps until the backward begins, or begins to recompute."""
        return np.where(self.recompute, self.input_bytes, self.saved_bytes)

    @cached_property
    def static_bytes(self) -> Floats:
        """Over devices: what is held all the time."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes + self.work_bytes

    @cached_property
    def memory_limit(self) -> Floats:
        """Over devices: bytes, or inf where no limit is known."""
        limits = [device.memory_bytes for device in self.cluster.devices]
        return np.array([np.inf if limit is None else float(limit) for limit in limits])

    def over_bytes(self, peak_bytes: Floats) -> Floats:
        """Over devices: how far a peak is over the limit; half a byte is rounding."""
        over = peak_bytes - self.memory_limit
        return np.where(over > 0.5, over, 0.0)

    @cached_property
    def delay_s(self) -> Floats:
        """Over flows: how long a message takes on a free link."""
        ends = self.flows.source, self.flows.target
        return np.asarray(self.cluster.latency_s[ends] + self.flows.num_bytes / self.cluster.bandwidth[ends])

    @cached_property
    def leaves_at_once(self) -> npt.NDArray[np.bool_]:
        """Over flows: whether the sender has nothing of a message any more once it is sent."""
        host = self.cluster.host_index
        within = host[self.flows.source] == host[self.flows.target]
        return np.asarray(within & self.copies_sent[self.flows.source])

    @cached_property
    def flows(self) -> Flows:
        """What moves between devices."""
        return find_flows(self)

    @cached_property
    def reductions(self) -> tuple[Reduction, ...]:
        """The all-reduces at the end of an iteration: replicated stages first, then ties."""
        tied = np.zeros(len(self.parameter_bytes))
        ties = []
        for number, (size, stages) in enumerate(zip(self.tied_bytes, self.tied_stages, strict=True)):
            places = [self.replicas(stage) for stage in stages]
            holders = sorted({int(device) for span in places for device in self.backward_device[span]})
            tied[list(stages)] += size
            if len(holders) > 1:
                ties.append(Reduction(True, number, stages, reduce_ring(self.cluster, holders, size)))
        found = []
        for stage in range(len(self.parameter_bytes)):
            devices = self.backward_device[self.replicas(stage)]
            if len(devices) > 1:
                size = float(self.parameter_bytes[stage] - tied[stage])
                ring = reduce_ring(self.cluster, [int(device) for device in devices], size)
                found.append(Reduction(False, stage, (stage,), ring))
        return tuple(found + ties)

    def replicas(self, stage: int) -> slice:
        """The places of a stage."""
        return slice(int(self.replica_offsets[stage]), int(self.replica_offsets[stage + 1]))
