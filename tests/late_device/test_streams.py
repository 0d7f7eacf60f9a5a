"""Streams, events and the times at which work runs."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.late_device import Settings, take_host_waits
from tests.support.late_device.ranks import checked_device
from tests.support.runtime.rank_pool import RankPool


def slow(tensor: torch.Tensor, times: int = 20) -> torch.Tensor:
    for _ in range(times):
        tensor = tensor @ tensor
        tensor = tensor / tensor.abs().max()
    return tensor


def operators_return_before_they_have_run() -> None:
    with checked_device(Settings(pace="lazy")):
        x = torch.ones(4, device="late") + 1
        event = torch.Event("late")
        event.record()
        time.sleep(0.05)
        assert not event.query(), "nobody has waited"
        assert x.tolist() == [2.0] * 4
        assert event.query()


def polling_ends_under_the_lazy_pace() -> None:
    with checked_device(Settings(pace="lazy")):
        x = torch.ones(4, device="late") + 1
        event = torch.Event("late")
        event.record()
        until = time.monotonic() + 10
        while not event.query():
            assert time.monotonic() < until
            time.sleep(0.001)
        del x


def a_stream_waits_for_an_event() -> None:
    for seed in range(5):
        with checked_device(Settings(pace="random", seed=seed)):
            x = slow(torch.eye(64, device="late") + 0.01)
            event = torch.Event("late")
            event.record()
            side = torch.Stream("late")
            with side:
                side.wait_event(event)
                y = x + 1
            torch.accelerator.current_stream().wait_stream(side)
            assert torch.equal(y.cpu(), x.cpu() + 1)


def an_event_that_was_never_recorded_is_complete() -> None:
    event = torch.Event("late")
    assert event.query()
    event.synchronize()


def events_measure_time() -> None:
    with checked_device(Settings()):
        first, last = torch.Event("late", enable_timing=True), torch.Event("late", enable_timing=True)
        first.record()
        slow(torch.eye(64, device="late"))
        last.record()
        last.synchronize()
        assert 0 < first.elapsed_time(last) < 10_000


def streams_share_one_hardware_queue() -> None:
    """With a queue for each stream, the second one would be done while the first still works."""
    with checked_device(Settings(num_queues=1)):
        x = slow(torch.eye(128, device="late"), 50)
        before = torch.Event("late")
        before.record()
        side = torch.Stream("late")
        with side:
            y = torch.ones(3, device="late") * 2
            side.synchronize()
            assert y.tolist() == [2.0] * 3
        assert before.query()
        assert torch.isfinite(x.cpu()).all()


def the_generator_gives_the_numbers_of_the_cpu() -> None:
    with checked_device(Settings(pace="lazy")):
        draws: list[Any] = [
            lambda device: torch.randn(7, device=device),
            lambda device: torch.rand(3, 5, device=device),
            lambda device: torch.randint(9, (11,), device=device),
            lambda device: torch.randperm(13, device=device),
            lambda device: torch.bernoulli(torch.full((20,), 0.3, device=device)),
            lambda device: torch.nn.functional.dropout(torch.ones(40, device=device), 0.4),
            lambda device: torch.nn.functional.rrelu(torch.linspace(-1, 1, 9, device=device), training=True),
            lambda device: torch.multinomial(torch.ones(5, device=device), 3),
        ]
        for draw in draws:
            torch.manual_seed(3)
            expected = draw("cpu"), draw("cpu")
            torch.manual_seed(3)
            found = draw("late"), draw("late")
            assert all(torch.equal(one.cpu(), other) for one, other in zip(found, expected, strict=True))
        device: Any = torch.get_device_module("late")
        state = device.get_rng_state()
        first = torch.randn(5, device="late").cpu()
        device.set_rng_state(state)
        assert torch.equal(torch.randn(5, device="late").cpu(), first)


def host_waits_are_counted_with_their_place() -> None:
    with checked_device(Settings()):
        x = torch.ones(4, device="late")
        y = x.mul(3).sum()
        assert take_host_waits() == []
        assert y.item() == 12
        (wait,) = take_host_waits()
        assert (wait.kind, wait.name) == ("read", "aten::_local_scalar_dense")
        assert "test_streams.py" in wait.place
        assert "host_waits_are_counted" in wait.place
        torch.accelerator.synchronize()
        x.cpu()
        torch.ones(3).to("late")
        x[x > 0]
        assert [wait.kind for wait in take_host_waits()][:3] == ["synchronize", "copy", "copy"]


def pinned_copies_do_not_wait() -> None:
    with checked_device(Settings(pace="lazy")):
        host = torch.arange(5.0).pin_memory()
        assert host.is_pinned()
        take_host_waits()
        x = host.to("late", non_blocking=True)
        back = torch.empty(5).pin_memory()
        back.copy_(x * 2, non_blocking=True)
        assert take_host_waits() == []
        torch.accelerator.synchronize()
        assert back.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]


def errors_of_jobs_surface_at_the_next_wait() -> None:
    with checked_device(Settings()):
        torch.nn.functional.embedding(torch.tensor([9], device="late"), torch.ones(3, 4, device="late"))
        with pytest.raises(RuntimeError, match="failed on the device"):
            torch.accelerator.synchronize()


def shape_errors_are_raised_at_once() -> None:
    with checked_device(Settings(pace="lazy")), pytest.raises(RuntimeError, match="size"):
        torch.ones(3, device="late") + torch.ones(4, device="late")


def tensors_of_two_devices_are_refused() -> None:
    with checked_device(Settings()), pytest.raises(RuntimeError, match="same device"):
        torch.ones(3, device="late") + torch.ones(3)


def torch_accelerator_knows_the_device() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("late")
    assert torch.accelerator.device_count() == 1
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    x = torch.ones(1000, device="late")
    assert torch.accelerator.memory_allocated() - before == 4096
    del x
    assert torch.accelerator.memory_allocated() == before
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total


@pytest.mark.parametrize(
    "check",
    [
        operators_return_before_they_have_run,
        polling_ends_under_the_lazy_pace,
        a_stream_waits_for_an_event,
        an_event_that_was_never_recorded_is_complete,
        events_measure_time,
        streams_share_one_hardware_queue,
        the_generator_gives_the_numbers_of_the_cpu,
        host_waits_are_counted_with_their_place,
        pinned_copies_do_not_wait,
        errors_of_jobs_surface_at_the_next_wait,
        shape_errors_are_raised_at_once,
        tensors_of_two_devices_are_refused,
        torch_accelerator_knows_the_device,
    ],
    ids=lambda check: check.__name__,
)
def test_device(late_pool: RankPool, check: Callable[[], None]) -> None:
    late_pool.run(1, check)
