"""Payloads with empty tensors over the real transport, and the timeout of process groups."""

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from penstock.runtime.transport.process_groups import open_process_groups
from tests.support.runtime.instrumented_runs import exchange_empty_tensors
from tests.support.runtime.message_order import NAME
from tests.support.runtime.rank_pool import RankPool


@pytest.mark.parametrize("backend", ["gloo", NAME])
def test_empty_tensors_are_not_sent(rank_pool: RankPool, backend: str) -> None:
    sent, received = rank_pool.run(2, exchange_empty_tensors, backend)
    assert sent == []
    once = [
        ([[0, 3], [4], [2, 0]], [0.0, 1.0, 2.0, 3.0]),
        ([[0]], []),
        ([[1], [0, 2], [2]], [1.0, 7.0, 7.0]),
    ]
    assert received == 3 * once


@pytest.mark.parametrize(("timeout_s", "expected_s"), [(1.0, 600.0), (120.0, 600.0), (200.0, 800.0)])
def test_process_groups_time_out_after_our_own_waits(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, expected_s: float
) -> None:
    timeouts: list[timedelta] = []

    def new_group(_ranks: list[int], *, timeout: timedelta, **_options: Any) -> str:
        timeouts.append(timeout)
        return "group"

    monkeypatch.setattr(dist, "new_group", new_group)
    open_process_groups("control", "gloo", [], [(0, 1), (1, 2)], device=torch.device("cpu"), timeout_s=timeout_s)
    assert [item.total_seconds() for item in timeouts] == [expected_s, expected_s]
