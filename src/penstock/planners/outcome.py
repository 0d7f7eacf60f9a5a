"""What comes of a plan, in the few figures by which plans are compared."""

import msgspec

from penstock.cluster import Cluster
from penstock.errors import MemoryLimitError
from penstock.plan import Plan
from penstock.planners.problem import Problem
from penstock.profile import Profile
from penstock.program.proof import check_memory
from penstock.simulate import Evaluation, evaluate
from penstock.timeline import bubble_fraction, device_uses


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a device has to hold at any time, and what it can."""

    device: str
    peak_bytes: float
    memory_bytes: float | None
    """None: no limit is known."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one simulated plan."""

    iteration_s: float
    rows_per_s: float | None
    """None where an iteration takes no time."""
    bubble_fraction: float
    peak_bytes: float
    traffic_bytes: float
    over_bytes: float
    """By how much the device that is shortest of memory is over its limit; 0 where all fits."""
    fits: bool
    short_of_memory: str
    """Which device is short of how much; empty where all fits."""
    whole_rows: bool
    """Whether every device gets whole rows of a micro-batch."""
    devices: tuple[DeviceMemory, ...]

    @property
    def rank(self) -> tuple[float, float]:
        """Smaller is better: what fits, or comes nearest to it, then what is faster."""
        return self.over_bytes, self.iteration_s


def outcome_of(plan: Plan, profile: Profile, cluster: Cluster) -> Outcome:
    """The figures of a plan, whether it fits into memory or not."""
    return summarised(evaluate(plan, profile, cluster, within_memory=False))


def summarised(result: Evaluation) -> Outcome:
    """The figures of an evaluation."""
    short = ""
    try:
        check_memory(result.proof)
    except MemoryLimitError as error:
        short = error.what
    plan, seconds = result.costs.plan, result.timeline.iteration_s
    uses = device_uses(result.timeline)
    limits = dict(zip(result.program.devices, result.costs.memory_limit.tolist(), strict=True))
    return Outcome(
        iteration_s=seconds,
        rows_per_s=plan.num_microbatches * plan.micro_batch_size / seconds if seconds > 0 else None,
        bubble_fraction=bubble_fraction(result.timeline),
        peak_bytes=max(use.peak_bytes for use in uses),
        traffic_bytes=sum(use.sent_bytes for use in uses),
        over_bytes=float(result.costs.over_bytes(result.proof.peak_bytes).max(initial=0.0)),
        fits=not short,
        short_of_memory=short,
        whole_rows=result.costs.has_whole_rows,
        devices=tuple(
            DeviceMemory(
                device=use.device,
                peak_bytes=use.peak_bytes,
                memory_bytes=limits[use.device] if limits[use.device] < float("inf") else None,
            )
            for use in uses
        ),
    )


def alone_s(problem: Problem) -> list[float]:
    """For each device the iteration if it did everything, whatever memory that would take."""
    clock, num = problem.clock, problem.num_microbatches
    return [
        num * float(clock.work(place)[-1]) + float(clock.prefix(place, 1.0, "step_s")[-1])
        for place in range(problem.cluster.num_devices)
    ]
