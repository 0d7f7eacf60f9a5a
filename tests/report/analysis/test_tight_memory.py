"""Devices that are nearly full: what their memory holds, and what more memory gains."""

import msgspec
import pytest

from penstock.cluster.load import load_cluster
from penstock.cluster.types import Cluster
from penstock.plan.pricing.pricing import price
from penstock.planners.methods.balanced import balanced
from penstock.planners.problem import Problem
from penstock.profile.load import load_profile
from penstock.report.analysis import find_tight_memory, tight_memory_sentences
from penstock.simulate import evaluate, evaluate_costs
from penstock.units import show_seconds

PROFILE = load_profile("gpt2", kinds=["T4"], micro_batch_size=2)


def _cluster(*memory_bytes: int) -> Cluster:
    cluster = load_cluster(f"{len(memory_bytes)} x T4 @ 10 GB/s")
    devices = zip(cluster.devices, memory_bytes, strict=True)
    return msgspec.structs.replace(
        cluster, devices=tuple(msgspec.structs.replace(device, memory_bytes=size) for device, size in devices)
    )


def test_the_parts_add_up_to_the_peak_of_the_full_device() -> None:
    problem = Problem(PROFILE, _cluster(16 * 10**9, 16 * 10**9), 8, schedule="1f1b")
    peaks = evaluate_costs(price(balanced(problem), PROFILE, problem.cluster)).proof.peak_bytes
    limits = int(1.02 * peaks[0]), int(2 * peaks[1])
    problem = Problem(PROFILE, _cluster(*limits), 8, schedule="1f1b")
    result = evaluate_costs(price(balanced(problem), PROFILE, problem.cluster))
    tight = find_tight_memory(result.timeline, result.costs, PROFILE)
    assert tight is not None
    (device,) = tight.devices
    assert device.device == "d0"
    assert sum(size for _, size in device.parts) == pytest.approx(device.peak_bytes) == pytest.approx(peaks[0])
    # The order of 1f1b does not depend on memory.
    assert tight.more_s == result.timeline.iteration_s
    first, second = tight_memory_sentences(tight, result.timeline.iteration_s)
    assert first.startswith("Memory of d0 is 98.0 % full (")
    assert second == "With 1.00 GB more there, the same stages would not be faster."
    wide = evaluate(balanced(Problem(PROFILE, _cluster(10**12, 10**12), 8)), PROFILE, _cluster(10**12, 10**12))
    assert find_tight_memory(wide.timeline, wide.costs, PROFILE) is None


def test_more_memory_saves_a_recomputation() -> None:
    free = Problem(PROFILE, _cluster(16 * 10**9, 16 * 10**9), 8)
    plan = balanced(free)
    saving = msgspec.structs.replace(
        plan, stages=tuple(msgspec.structs.replace(s, recompute=True) for s in plan.stages)
    )
    peaks = evaluate_costs(price(saving, PROFILE, free.cluster)).proof.peak_bytes
    cluster = _cluster(*(int(1.01 * peak) for peak in peaks))
    result = evaluate(saving, PROFILE, cluster, strict=False)
    tight = find_tight_memory(result.timeline, result.costs, PROFILE)
    assert tight is not None
    assert tight.more_s is not None
    assert len(tight.devices) == 2
    assert tight.more_s < result.timeline.iteration_s
    *_, last = tight_memory_sentences(tight, result.timeline.iteration_s)
    assert last.startswith(
        f"With 1.00 GB more on each of these devices, the same stages would take {show_seconds(tight.more_s)}, "
    )
