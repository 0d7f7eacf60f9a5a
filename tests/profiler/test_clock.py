"""The clock of measured passes: other work on the machine does not lengthen what one thread computes."""

import time
from collections.abc import Iterator

import pytest
import torch

from penstock.profiler import clock as clock_module
from penstock.profiler.clock import mark_now, seconds_now
from tests.device.fake_streams import DEVICE, pretend_streams

CPU = torch.device("cpu")
WAIT_S = 0.2


@pytest.fixture
def _own_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("num_threads", "counts"), [(1, False), (2, True)])
@pytest.mark.usefixtures("_own_threads")
def test_time_in_which_one_thread_does_not_run_does_not_count(num_threads: int, counts: bool) -> None:
    torch.set_num_threads(num_threads)
    started = seconds_now(CPU)
    time.sleep(WAIT_S)  # as if another process had the core
    assert (seconds_now(CPU) - started >= 0.9 * WAIT_S) == counts


@pytest.mark.usefixtures("_own_threads")
def test_computation_counts() -> None:
    torch.set_num_threads(1)
    x = torch.ones(200, 200)
    started, wall = seconds_now(CPU), time.perf_counter()
    for _ in range(30):
        x = x @ x
    assert 0 < seconds_now(CPU) - started < 1.1 * (time.perf_counter() - wall) + 0.01


def test_passes_of_an_accelerator_are_marked_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(mark_now(CPU), float)
    streams = pretend_streams(monkeypatch)
    monkeypatch.setattr(clock_module, "synchronize", lambda _device: pytest.fail("the host waits"))
    marks = [mark_now(DEVICE) for _ in range(3)]
    assert all(isinstance(mark, torch.Event) for mark in marks)
    assert streams.host_waits == 0
