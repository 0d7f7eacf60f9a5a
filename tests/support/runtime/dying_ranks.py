"""Ranks that are killed at a chosen moment of their heartbeats, as main functions of processes."""

import os
import time

import torch
from torch import Tensor, nn

from penstock.runtime.health.heartbeat import Heartbeat
from penstock.runtime.health.status import BEAT_S
from penstock.runtime.pipeline import Pipeline
from tests.support.runtime.failing_ranks import Slow, join
from tests.support.runtime.user_models import mean_square, plan_of

EXIT_CODE = 3


class ExitAfterHeartbeats(nn.Module):
    """Exits after more than two heartbeats."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(2.6 * BEAT_S)
        os._exit(EXIT_CODE)


class Fail(nn.Module):
    """Raises an error."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(2 * BEAT_S)
        raise ValueError("this layer always fails")


def exit_after_two_heartbeats(store_file: str, rank: int) -> None:
    """Rank 1 exits in its first forward, after two heartbeats."""
    join(store_file, rank, 2)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), ExitAfterHeartbeats())
    pipe = Pipeline(model, plan_of([0, 1, 3], [["d0"], ["d1"]]), mean_square, timeout_s=30.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def exit_before_report(store_file: str, rank: int, *, is_stuck: bool) -> None:
    """Rank 1 fails and exits before it has reported. Rank 0 waits for it, or blocks in a forward."""
    join(store_file, rank, 2)
    if rank == 1:
        Heartbeat._gather_table = lambda self: os._exit(EXIT_CODE)  # type: ignore[method-assign]
    model = nn.Sequential(nn.Linear(3, 3), Slow(120.0 if is_stuck else 0.0, rank=0), Fail(), nn.Linear(3, 3))
    cuts, groups = ([0, 4], [["d0", "d1"]]) if is_stuck else ([0, 2, 4], [["d0"], ["d1"]])
    pipe = Pipeline(model, plan_of(cuts, groups), mean_square, timeout_s=60.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))
