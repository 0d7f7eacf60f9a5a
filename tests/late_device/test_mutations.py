"""Faults of the runtime that a CPU with gloo does not show, and that the device finds."""

from dataclasses import replace

import torch

from tests.support.late_device import NAME, PACES, Pace, Settings, mutations
from tests.support.late_device.training import steady_waits, train_mutated
from tests.support.runtime.comparison import check, keeps_every_order
from tests.support.runtime.grid import Extent, cluster_of, plans
from tests.support.runtime.models import profile_of
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.rank_server import Outcome
from tests.support.runtime.training import Job

torch.set_num_threads(1)

BY_DESIGN = ("run_ahead.py", "grad_reduce.py", "executor/loss.py")
"""Places that may wait for the device: the bound of the run-ahead, and what follows the last backward."""


def job_with(schedule: str) -> Job:
    (plan, *_) = [plan for plan in plans("mlp", 2, Extent.FEW) if plan.schedule == schedule]
    return Job("mlp", plan, profile_of("mlp"), cluster_of(2), device=NAME)


def run(
    pool: RankPool, mutation: mutations.Mutation, *, schedule: str = "zb_h1", pace: Pace = "eager"
) -> list[Outcome]:
    return pool.outcomes(2, train_mutated, job_with(schedule), Settings(pace=pace), mutation)


def failures(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return [(outcome.value.kind, outcome.value.message) for outcome in outcomes if not outcome.succeeded]


def test_without_a_fault(late_pool: RankPool) -> None:
    for pace in PACES:
        outcomes = run(late_pool, mutations.none, pace=pace)
        assert failures(outcomes) == []
        job = replace(job_with("zb_h1"), device="cpu")
        check(job, [outcome.value for outcome in outcomes], exact=keeps_every_order(job))


def test_waits_for_the_whole_device_are_harmless(late_pool: RankPool) -> None:
    for schedule in ("zb_h1", "zb_v", "interleaved"):
        assert failures(run(late_pool, mutations.wait_in_forward, schedule=schedule)) == []


def test_receives_posted_two_ahead(late_pool: RankPool) -> None:
    """A device that waits for everything then waits for a message that its own work must cause."""
    assert any("imed out" in message for _, message in failures(run(late_pool, mutations.post_receives_ahead)))


def test_a_send_buffer_freed_early(late_pool: RankPool) -> None:
    found = failures(run(late_pool, mutations.free_send_buffers_early))
    assert any(kind == "RaceError" and "free" in text and "send to rank" in text for kind, text in found)


def test_a_forgotten_wait_of_a_stream(late_pool: RankPool) -> None:
    found = failures(run(late_pool, mutations.forget_a_stream_wait))
    assert any(kind == "RaceError" and "receive from rank" in text for kind, text in found)


def test_a_wait_of_the_host_in_the_middle_of_a_step(late_pool: RankPool) -> None:
    job = job_with("zb_h1")
    for mutation, is_expected in ((mutations.none, False), (mutations.wait_in_forward, True)):
        for waits in late_pool.run(2, steady_waits, job, Settings(), mutation):
            places = [wait.place for wait in waits if not any(part in wait.place for part in BY_DESIGN)]
            assert all("mutations.py" in place for place in places), places
            assert bool(places) == is_expected
