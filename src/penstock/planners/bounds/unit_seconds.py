"""Inputs of the lower bounds: the seconds of every layer on every device, and the cost of every link."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from penstock.arrays import Floats
from penstock.cluster import Cluster
from penstock.plan.pricing import Part, UnitClock
from penstock.planners.problem import Problem
from penstock.profile import fit

NO_SHARE = 1e-12
"""Stands for no rows, for which there are no seconds."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Seconds [device, unit] as `base + per_share * share`; neither is negative."""

    base: Floats
    per_share: Floats

    @property
    def whole(self) -> Floats:
        """Seconds of whole micro-batches (share 1)."""
        return self.base + self.per_share

    def __add__(self, other: "Lines") -> "Lines":
        return Lines(self.base + other.base, self.per_share + other.per_share)

    def times(self, factor: float) -> "Lines":
        """All seconds multiplied by a factor."""
        return Lines(self.base * factor, self.per_share * factor)


@dataclass(frozen=True, eq=False)
class UnitTimes:
    """Seconds of every layer on every device, and bytes of every layer.

    `input_bytes` holds the input of each layer, `cut_bytes` its output, `grad_bytes` the
    gradients of its output, `saved_bytes` its saved tensors.
    """

    cluster: Cluster
    num_microbatches: int
    forward: Lines
    input_grad: Lines
    weight_grad: Lines
    step: Lines
    cut_bytes: Floats
    grad_bytes: Floats
    input_bytes: Floats
    saved_bytes: Floats
    returned_bytes: Floats
    """Trained parameters that are not shared with other layers."""
    trained_bytes: Floats

    def with_step_share(self, share: float) -> "UnitTimes":
        """The same, with a share of every optimizer step."""
        return replace(self, step=self.step.times(share))

    @property
    def both_ways_bytes(self) -> Floats:
        """Bytes that at least cross each cut in both directions."""
        return np.minimum(self.cut_bytes, self.grad_bytes)

    @property
    def num_units(self) -> int:
        """Number of layers."""
        return int(self.forward.base.shape[1])

    @cached_property
    def rate(self) -> Floats:
        """Bytes per second [source, target], limited by the hosts' interfaces; inf from a device to itself."""
        bandwidth = np.array([host.interface_bandwidth or np.inf for host in self.cluster.hosts])
        host = self.cluster.host_index
        ends = np.minimum.outer(bandwidth[host], bandwidth[host])
        return np.where(
            host[:, None] == host[None, :], self.cluster.bandwidth, np.minimum(self.cluster.bandwidth, ends)
        )

    def hop(self, num_bytes: float) -> Floats:
        """Seconds [source, target] of one message; 0 from a device to itself."""
        return self.cluster.latency_s + num_bytes / self.rate


def _whole(clock: UnitClock, device: int, part: Part) -> tuple[Floats, Floats]:
    whole = np.diff(clock.prefix(device, 1.0, part))
    return np.zeros_like(whole), whole


def _line_below(clock: UnitClock, device: int, part: Part) -> tuple[Floats, Floats]:
    """Base and slope of a line over the share, for every layer, that is nowhere above the layer's seconds.

    The line through whole micro-batches, where its base is not negative; otherwise one through the origin. Seconds are
    straight between the corners, so the line is below them everywhere if it is there.
    """
    shares = (NO_SHARE, *clock.corners(device))
    whole = np.diff(clock.prefix(device, 1.0, part))
    seconds = np.stack([np.diff(clock.prefix(device, share, part)) for share in shares])
    rest = np.array(shares)[:, None]
    slope = np.maximum(((whole - seconds) / (1 - rest)).max(axis=0), 0.0)
    steepest = np.minimum((seconds / rest).min(axis=0), whole)
    is_through_origin = slope > whole
    base = np.where(is_through_origin, 0.0, np.clip(whole - slope, 0.0, whole))
    return base, np.where(is_through_origin, steepest, whole - base)


def unit_times(problem: Problem, *, replication: bool = True) -> UnitTimes:
    """Compute the seconds of a problem's layers on all devices of its cluster.

    With replication, lines over the share that are nowhere above the seconds; otherwise those of whole micro-batches.
    """
    clock, profile = problem.clock, problem.profile
    devices = range(problem.cluster.num_devices)

    def lines(part: Part) -> Lines:
        find = _line_below if replication else _whole
        found = [find(clock, device, part) for device in devices]
        return Lines(*(np.stack(values) for values in zip(*found, strict=True)))

    sizes = fit(profile, profile.kinds[0]).at(problem.rows_per_microbatch)
    first = profile.input_bytes * problem.rows_per_microbatch / profile.micro_batch_size
    shared = np.zeros(profile.num_units)
    for tie in filter(lambda tie: tie.is_trained, profile.ties):
        shared[list(tie.units)] += tie.parameter_bytes
    return UnitTimes(
        cluster=problem.cluster,
        num_microbatches=problem.num_microbatches,
        forward=lines("forward_s"),
        input_grad=lines("input_grad_s"),
        weight_grad=lines("weight_grad_s"),
        step=lines("step_s"),
        cut_bytes=sizes.cut_bytes,
        grad_bytes=sizes.grad_bytes,
        input_bytes=np.concatenate([[first], sizes.cut_bytes[:-1]]),
        saved_bytes=sizes.saved_bytes,
        returned_bytes=sizes.trained_bytes - shared,
        trained_bytes=sizes.trained_bytes,
    )
