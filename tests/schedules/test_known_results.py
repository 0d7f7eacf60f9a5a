"""What the literature says of equal stages without communication. All times are exact in binary, so == is meant."""

import numpy as np
import pytest

from penstock.simulate.evaluation import Evaluation, evaluate_costs
from penstock.timeline.summary import bubble_fraction, device_uses
from tests.support.strategies import equal_case

STAGES = [1, 2, 3, 4, 7, 8]
MICROBATCHES = [1, 2, 3, 4, 7, 8, 16, 33]
TIMES = [(1.0, 0.5, 0.5), (1.0, 1.0, 1.0), (0.75, 2.0, 0.25), (3.0, 0.0, 1.5)]
"""F, I and W."""


def run(stage_devices: list[int], num: int, schedule: str, times: tuple[float, float, float]) -> Evaluation:
    forward_s, input_grad_s, weight_grad_s = times
    case = equal_case(
        stage_devices, num, schedule, forward_s=forward_s, input_grad_s=input_grad_s, weight_grad_s=weight_grad_s
    )
    return evaluate_costs(case.costs)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("stages", STAGES)
def test_gpipe_and_1f1b_take_fill_and_drain(stages: int, times: tuple[float, float, float], schedule: str) -> None:
    for num in MICROBATCHES:
        found = run(list(range(stages)), num, schedule, times)
        assert found.timeline.iteration_s == (num + stages - 1) * sum(times)
        # The published fraction: (S - 1) / (M + S - 1) of all device time.
        expected = stages * (stages - 1) * sum(times) / (stages * found.timeline.iteration_s)
        assert bubble_fraction(found.timeline) == expected
        assert bubble_fraction(found.timeline) == pytest.approx((stages - 1) / (num + stages - 1), rel=1e-15)


@pytest.mark.parametrize("stages", STAGES)
def test_micro_batches_kept(stages: int) -> None:
    for num in MICROBATCHES:
        stage_devices = list(range(stages))
        assert run(stage_devices, num, "gpipe", TIMES[0]).proof.peak_bytes.tolist() == [num] * stages
        in_1f1b = [min(stages - stage, num) for stage in range(stages)]
        assert run(stage_devices, num, "1f1b", TIMES[0]).proof.peak_bytes.tolist() == in_1f1b


@pytest.mark.parametrize("stages", STAGES)
def test_zb_h1(stages: int) -> None:
    for num in MICROBATCHES:
        found = run(list(range(stages)), num, "zb_h1", (1.0, 1.0, 1.0))
        assert found.proof.peak_bytes.max() <= min(stages, num)
        if num < stages:
            continue
        assert found.timeline.iteration_s == 3 * num + (stages - 1)
        # A device fills and drains without work; what lies between is at most (S - 1) (F + I - W).
        assert max(use.inner_bubble_s for use in device_uses(found.timeline)) <= stages - 1
        assert bubble_fraction(found.timeline) == (stages - 1) / (3 * num + stages - 1)


@pytest.mark.parametrize("stages", STAGES)
def test_zb_h1_bubble_is_a_third_of_1f1b(stages: int) -> None:
    num, times = 2 * stages, (1.0, 1.0, 1.0)
    plain = run(list(range(stages)), num, "1f1b", times).timeline.iteration_s - 3 * num
    filled = run(list(range(stages)), num, "zb_h1", times).timeline.iteration_s - 3 * num
    assert plain == 3 * filled


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 5, 6, 8])
def test_zb_v_has_no_inner_bubble(devices: int) -> None:
    stage_devices = [*range(devices), *reversed(range(devices))]
    least = 2 * devices - 1
    for num in [*range(least, least + 6), 3 * devices + 1, 4 * devices, 40]:
        if num < least:
            continue
        found = run(stage_devices, num, "zb_v", (1.0, 1.0, 1.0))
        assert [use.inner_bubble_s for use in device_uses(found.timeline)] == [0.0] * devices
        assert found.timeline.iteration_s == 6 * num + devices - 1
        assert found.proof.peak_bytes.max() <= 2 * devices


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8])
def test_zb_v_keeps_no_more_with_few_micro_batches(devices: int) -> None:
    stage_devices = [*range(devices), *reversed(range(devices))]
    for num in range(1, 2 * devices):
        found = run(stage_devices, num, "zb_v", (1.0, 1.0, 1.0))
        assert found.proof.peak_bytes.max() <= 2 * min(num, devices)
        # Never better than what work and the longest chain allow: 2 p forwards and 2 p input gradients in a row.
        assert found.timeline.iteration_s >= max(6 * num, 4 * devices + 1)


V_MOST_KEPT = {"v_half": lambda p: 2 * (p // 2) + 2, "v_min": lambda p: 2 * ((p + 1) // 3) + 2}
V_PARTS = {"v_half": 1 / 2, "v_min": 1 / 3}


@pytest.mark.parametrize("name", V_MOST_KEPT)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16])
def test_memory_of_v_half_and_v_min(devices: int, times: tuple[float, float, float], name: str) -> None:
    """Half and a third of 1F1B's 2 p (stage, micro-batch) pairs, and at most 4/3 of a micro-batch more."""
    stage_devices = [*range(devices), *reversed(range(devices))]
    for num in (1, 2, devices, 2 * devices + 1, 4 * devices):
        peak = run(stage_devices, num, name, times).proof.peak_bytes.max()
        assert peak <= min(V_MOST_KEPT[name](devices), 2 * num)
        assert peak <= V_PARTS[name] * 2 * devices + 8 / 3


@pytest.mark.parametrize(("name", "part"), [("v_half", 0.5), ("v_min", 2 / 3)])
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 5, 6, 8, 16])
def test_bubble_of_v_half_and_v_min(devices: int, name: str, part: float) -> None:
    """About a half and two thirds of 1F1B's bubble of 6 (p - 1) passes; up to three passes more, to turn around."""
    stage_devices = [*range(devices), *reversed(range(devices))]
    for num in (devices, 2 * devices, 4 * devices):
        found = run(stage_devices, num, name, (1.0, 1.0, 1.0))
        assert found.timeline.iteration_s <= 6 * num + part * 6 * (devices - 1) + 3


@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("devices", [2, 3, 4, 6])
def test_interleaved(devices: int, times: tuple[float, float, float], chunks: int) -> None:
    # A device has M v (f + b) of work, f and b those of one of its v stages; the bubble is (p - 1) (f + b), which is
    # (p - 1) (F + B) / v in whole stages: v times smaller than that of 1F1B.
    both = sum(times)
    for groups in (1, 2, 3, 5):
        num = groups * devices
        found = run(list(range(devices)) * chunks, num, "interleaved", times)
        assert found.timeline.iteration_s == num * chunks * both + (devices - 1) * both
        for use in device_uses(found.timeline):
            assert use.busy_s == num * chunks * both
            assert use.bubble_s == (devices - 1) * both
        whole = run(list(range(devices)), num, "1f1b", tuple(chunks * part for part in times))  # type: ignore[arg-type]
        plain = whole.timeline.iteration_s - num * chunks * both
        assert plain == chunks * (found.timeline.iteration_s - num * chunks * both)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb_h1", "zb_v", "v_half", "v_min"])
def test_one_device_never_waits(schedule: str) -> None:
    for stages in (1, 2, 4):
        found = run([0] * stages, 5, schedule, (1.0, 0.5, 0.25))
        assert found.timeline.iteration_s == 5 * stages * 1.75
        assert bubble_fraction(found.timeline) == 0.0


def test_interleaved_with_one_stage_a_device_is_1f1b() -> None:
    stage_devices = [0, 1, 2, 3]
    loop, plain = (run(stage_devices, 6, name, (1.0, 0.5, 0.5)) for name in ("interleaved", "1f1b"))
    assert loop.program.same_actions(plain.program)
    assert np.array_equal(loop.timeline.start_s, plain.timeline.start_s)
