"""How much slower than its cluster an emulation runs."""

import os

import msgspec
import pytest

from penstock.emulation import time_scale
from penstock.emulation.time_scale import ACTION_S, BYTE_S, MAX_BUSY, choose_slow_down, estimate_work_s
from tests.support.small_emulation import small


def test_the_work_of_an_iteration() -> None:
    emulation = small()
    # By hand: stage 0 has two replicas, which exchange 0.2 MB per micro-batch with d2 and d3 in each direction; d2
    # sends the activations (0.4 MB) and saved tensors (0.2 MB) of stage 1 to d3; d3 returns 0.8 MB of weights.
    messages = 4 * (2 * 0.2e6 + 2 * 0.2e6 + 0.4e6 + 0.2e6) + 0.8e6
    # Each of two devices sends as many bytes as the gradients of stage 0 have.
    reduced = 2 * 1.6e6
    actions = emulation.evaluation.program.num_actions
    assert estimate_work_s(emulation.evaluation) == pytest.approx((messages + reduced) * BYTE_S + actions * ACTION_S)
    bare = msgspec.structs.replace(emulation, is_shaped=False, slow_down=3.0)
    assert estimate_work_s(bare.evaluation) == pytest.approx(estimate_work_s(emulation.evaluation))


@pytest.mark.parametrize(
    ("busy", "expected"),
    [(0.5, 1.0), (0.999, 1.0), (1.01, 1.1), (1.1, 1.1), (1.11, 1.2), (9.95, 10.0), (12.3, 13.0), (123.4, 130.0)],
)
def test_it_is_rounded_up_to_two_digits(monkeypatch: pytest.MonkeyPatch, busy: float, expected: float) -> None:
    evaluation = small().evaluation
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    work_s = busy * evaluation.timeline.iteration_s * MAX_BUSY * 8
    monkeypatch.setattr(time_scale, "estimate_work_s", lambda _: work_s * (1 - 1e-12))
    assert choose_slow_down(evaluation) == expected


def test_more_cores_need_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = small().evaluation
    found = []
    for cores in (1, 2, None):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        monkeypatch.setattr(time_scale, "estimate_work_s", lambda _: evaluation.timeline.iteration_s * MAX_BUSY * 3)
        found.append(choose_slow_down(evaluation))
    assert found == [3.0, 1.5, 3.0]
