"""Where the host of a rank waits for its device, and the times that it measures without waiting."""

from itertools import pairwise

import pytest
import torch

from tests.support.late_device import Settings
from tests.support.late_device.host_waits import timeline_of_step, waits_of_step
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)

PLANS = {
    "1f1b": ("mlp", plan_of([0, 3, 7], [["d0"], ["d1"]], num_microbatches=4)),
    "split and remote": (
        "mlp",
        plan_of([0, 4, 7], [["d0"], ["d1"]], backward=[["d1"], ["d0"]], schedule="zb_h1", num_microbatches=4),
    ),
    "tied": ("gpt", plan_of([0, 2, 5], [["d0"], ["d1"]], schedule="zb_h1", num_microbatches=4)),
}
AT_THE_END = ("read <", "finish <")
"""Where an iteration may wait when everything of it is queued: the loss, and the flags of gradient reductions."""


@pytest.mark.parametrize("name", list(PLANS))
def test_no_wait_between_the_first_forward_and_the_loss(late_pool: RankPool, name: str) -> None:
    kind, plan = PLANS[name]
    for waits in late_pool.run(2, waits_of_step, kind, plan, Settings(pace="lazy"), False):
        middle = [place for place in waits if not any(f" {end}" in place for end in AT_THE_END)]
        assert middle == []


def test_in_the_middle_the_host_waits_only_if_it_is_two_micro_batches_ahead(late_pool: RankPool) -> None:
    kind, plan = PLANS["1f1b"]
    ranks = late_pool.run(2, waits_of_step, kind, plan, Settings(pace="lazy"), True)
    middle = [[place for place in waits if not any(f" {end}" in place for end in AT_THE_END)] for waits in ranks]
    # 8 actions of 4 micro-batches, of which 4 may be queued. A device that other ranks wait for may keep up.
    assert all(len(places) <= 4 for places in middle)
    assert all("run_ahead.py" in place for places in middle for place in places)


def test_a_host_wait_in_the_middle_of_a_step_is_found(late_pool: RankPool) -> None:
    kind, plan = PLANS["1f1b"]
    found = late_pool.run(2, waits_of_step, kind, plan, Settings(pace="lazy"), False, True)
    assert any("forward <" in place for waits in found for place in waits)


@pytest.mark.parametrize("settings", [Settings(pace="random", seed=3), Settings(pace="lazy")])
def test_a_timeline_has_the_times_of_the_device(late_pool: RankPool, settings: Settings) -> None:
    _, plan = PLANS["1f1b"]
    (_, starts, ends, computed, step_s), other = late_pool.run(2, timeline_of_step, plan, settings)
    assert other is None, "timelines go to rank 0 only"
    assert min(starts) == 0
    assert all(start <= end for start, end in zip(starts, ends, strict=True))
    assert 0 < max(ends) <= step_s + 0.05
    for own in computed.values():
        # Work of one stream does not overlap. The clock of events counts in single precision.
        assert all(ends[one] <= starts[other] + 1e-4 for one, other in pairwise(own))
