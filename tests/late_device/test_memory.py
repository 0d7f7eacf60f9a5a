"""Memory of the device, and the check that accesses to it are ordered."""

from collections.abc import Callable

import pytest
import torch

from tests.support.late_device import PACES, Settings, take_host_waits, take_races
from tests.support.late_device.ranks import RaceError, checked_device
from tests.support.runtime.rank_pool import RankPool

NUM = 1000
NUM_ALONE = 123_457


def freed_memory_is_poisoned() -> None:
    with checked_device(Settings()):
        # A size of its own: other blocks of it may be free after earlier tests.
        x = torch.ones(NUM_ALONE, device="late")
        address = x.data_ptr()
        del x
        y = torch.empty(NUM_ALONE, device="late")
        assert y.data_ptr() == address, "the same stream reuses memory at once"
        assert y.isnan().all()


def a_missing_wait_is_reported() -> None:
    """Whether or not the first stream has finished, and the numbers are right by chance."""
    with checked_device(Settings()):
        x = torch.ones(NUM, device="late") * 3
        side = torch.Stream("late")
        with side:
            x.add(1)
        torch.accelerator.synchronize()
        races = take_races()
        assert len(races) == 1
        assert "aten::add.Tensor (reads" in races[0]
        assert "aten::mul" in races[0]
        assert "test_memory.py" in races[0]


def an_early_free_is_reported() -> None:
    with checked_device(Settings()):
        side = torch.Stream("late")
        x = torch.ones(NUM, device="late")
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            y = x + 1
        del x
        (race,) = take_races()
        assert "free" in race
        torch.accelerator.synchronize()
        del y


def a_recorded_stream_keeps_memory() -> None:
    for seed in range(5):
        with checked_device(Settings(pace="random", seed=seed)):
            side = torch.Stream("late")
            x = torch.ones(NUM, device="late")
            side.wait_stream(torch.accelerator.current_stream())
            with side:
                y = x + 1
            x.record_stream(side)
            del x
            z = torch.zeros(NUM, device="late")
            torch.accelerator.current_stream().wait_stream(side)
            assert (y == 2).all()
            assert (z == 0).all()
            y.record_stream(torch.accelerator.current_stream())


def a_write_after_a_read_needs_a_wait() -> None:
    with checked_device(Settings()):
        side = torch.Stream("late")
        x = torch.ones(NUM, device="late")
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            y = x + 1
        x.zero_()
        (race,) = take_races()
        assert race.startswith("aten::zero_")
        torch.accelerator.synchronize()
        del y


def a_checked_device_raises_races() -> None:
    def read_too_early() -> None:
        with checked_device(Settings()):
            x = torch.ones(NUM, device="late")
            with torch.Stream("late"):
                y = x + 1
            torch.accelerator.synchronize()
            del x, y

    with pytest.raises(RaceError, match=r"aten::add"):
        read_too_early()


def a_wait_of_the_host_orders_everything() -> None:
    with checked_device(Settings()):
        x = torch.ones(NUM, device="late")
        torch.accelerator.synchronize()
        side = torch.Stream("late")
        with side:
            y = x + 1
        side.synchronize()
        del x
        assert (y == 2).all()


def parts_of_a_tensor_are_independent() -> None:
    with checked_device(Settings()):
        x = torch.empty(2, NUM, device="late")
        side = torch.Stream("late")
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            x[0].fill_(1)
        x[1].fill_(2)
        torch.accelerator.current_stream().wait_stream(side)
        assert x.sum().item() == 3 * NUM


def the_limit_makes_the_allocator_wait_for_the_device() -> None:
    with checked_device(Settings(limit_bytes=1 << 20)):
        torch.accelerator.empty_cache()
        base = torch.accelerator.memory_reserved()
        assert base < 1 << 19
        x = torch.ones(1 << 17, device="late")
        del x
        take_host_waits()
        y = torch.ones((1 << 17) + (1 << 16), device="late")
        assert {wait.kind for wait in take_host_waits()} == {"reclaim"}
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            torch.ones(1 << 18, device="late")
        del y


def backward_runs_on_a_thread_of_the_device() -> None:
    """The threads of autograd use the stream of the forward, and are ordered with the caller's."""
    for pace in PACES:
        with checked_device(Settings(pace=pace)):
            weight = torch.full((8, 8), 0.1, device="late", requires_grad=True)
            side = torch.Stream("late")
            side.wait_stream(torch.accelerator.current_stream())
            x = torch.ones(3, 8, device="late")
            side.wait_stream(torch.accelerator.current_stream())
            with side:
                loss = (x @ weight).tanh().sum()
            torch.autograd.backward(loss)
            torch.accelerator.current_stream().wait_stream(side)
            assert weight.grad is not None
            other = torch.full((8, 8), 0.1, requires_grad=True)
            torch.autograd.backward((torch.ones(3, 8) @ other).tanh().sum())
            assert other.grad is not None
            assert torch.equal(weight.grad.cpu(), other.grad)
            torch.accelerator.synchronize()
            del x, loss


@pytest.mark.parametrize(
    "check",
    [
        freed_memory_is_poisoned,
        a_missing_wait_is_reported,
        an_early_free_is_reported,
        a_recorded_stream_keeps_memory,
        a_write_after_a_read_needs_a_wait,
        a_checked_device_raises_races,
        a_wait_of_the_host_orders_everything,
        parts_of_a_tensor_are_independent,
        the_limit_makes_the_allocator_wait_for_the_device,
        backward_runs_on_a_thread_of_the_device,
    ],
    ids=lambda check: check.__name__,
)
def test_memory(late_pool: RankPool, check: Callable[[], None]) -> None:
    late_pool.run(1, check)
