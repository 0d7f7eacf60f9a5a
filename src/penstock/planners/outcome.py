"""The outcome of a plan: the figures by which plans are compared."""

import msgspec

from penstock.cluster import Cluster
from penstock.errors import MemoryLimitError
from penstock.plan import Plan
from penstock.planners.problem import Problem
from penstock.profile import Profile
from penstock.program.proof import check_memory
from penstock.simulate import Evaluation, Interval, evaluate, predict
from penstock.timeline import bubble_fraction, device_uses, rows_per_second


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory of a device, and its limit.

    Attributes:
        device: Name of the device.
        peak_bytes: The most bytes that it holds at any time.
        memory_bytes: Its memory; None if unknown.
    """

    device: str
    peak_bytes: float
    memory_bytes: float | None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one simulated plan.

    Attributes:
        iteration_s: Iteration time.
        rows_per_s: Throughput; None if the iteration time is 0.
        bubble_fraction: The part of the devices' time in which they do not compute.
        peak_bytes: Peak memory of the fullest device.
        traffic_bytes: Bytes that all devices send.
        over_bytes: Bytes that are missing on the device that lacks most; 0 if the plan fits.
        fits: Whether the plan fits into memory.
        short_of_memory: Which device lacks how much; empty if the plan fits.
        whole_rows: Whether every replica gets whole rows.
        devices: Memory of every device.
        interval: The predicted interval of the iteration time, where it was computed.
    """

    iteration_s: float
    rows_per_s: float | None
    bubble_fraction: float
    peak_bytes: float
    traffic_bytes: float
    over_bytes: float
    fits: bool
    short_of_memory: str
    whole_rows: bool
    devices: tuple[DeviceMemory, ...]
    interval: Interval | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key, the best first: by missing memory, then by iteration time."""
        return self.over_bytes, self.iteration_s


def outcome_of(plan: Plan, profile: Profile, cluster: Cluster, *, with_interval: bool = False) -> Outcome:
    """Evaluate a plan, whether it fits into memory or not."""
    result = evaluate(plan, profile, cluster, within_memory=False)
    outcome = summarize(result)
    if not with_interval:
        return outcome
    return msgspec.structs.replace(outcome, interval=predict(result.proof, profile).interval)


def summarize(result: Evaluation) -> Outcome:
    """Summarize an evaluation."""
    short = ""
    try:
        check_memory(result.proof)
    except MemoryLimitError as error:
        short = error.what
    uses = device_uses(result.timeline)
    limits = dict(zip(result.program.devices, result.costs.memory_limit.tolist(), strict=True))
    return Outcome(
        iteration_s=result.timeline.iteration_s,
        rows_per_s=rows_per_second(result.timeline),
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


def single_device_s(problem: Problem) -> list[float]:
    """For each device, the iteration time of the whole model on it alone, with unlimited memory."""
    clock, num = problem.clock, problem.num_microbatches
    return [
        num * float(clock.work(device)[-1]) + float(clock.prefix(device, 1.0, "step_s")[-1])
        for device in range(problem.cluster.num_devices)
    ]
