"""Times of a device on the clock of the host."""

from time import perf_counter, sleep
from typing import Any

import pytest
import torch

from penstock.device import DeviceClock
from tests.device.fake_streams import DEVICE


def test_on_the_cpu_a_mark_is_the_time() -> None:
    clock = DeviceClock(torch.device("cpu"))
    before_s, mark, after_s = perf_counter(), clock.mark(), perf_counter()
    assert clock.is_host
    assert isinstance(mark, float)
    assert before_s <= mark <= after_s
    assert clock.seconds([mark, 2.5]) == [mark, 2.5]


class LateDevice:
    """A device that reaches its events later than the host queues them, and counts milliseconds from its own start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        device = self
        self.num_waits = 0
        self.delay_s = 0.0

        class Event:
            def __init__(self, _device: Any, *, enable_timing: bool) -> None:
                assert enable_timing
                self.at_s = 0.0

            def record(self, _stream: Any) -> None:
                self.at_s = perf_counter() + device.delay_s

            def synchronize(self) -> None:
                sleep(max(0.0, self.at_s - perf_counter()))

            def elapsed_time(self, other: "Event") -> float:
                return (other.at_s - self.at_s) * 1e3

        monkeypatch.setattr(torch, "Event", Event)
        monkeypatch.setattr(torch.accelerator, "current_stream", lambda _device: None)
        monkeypatch.setattr(torch.accelerator, "synchronize", self.synchronize)

    def synchronize(self, _device: Any) -> None:
        self.num_waits += 1
        sleep(self.delay_s)
        self.delay_s = 0.0


def test_marks_are_the_times_at_which_the_device_gets_there(monkeypatch: pytest.MonkeyPatch) -> None:
    device = LateDevice(monkeypatch)
    clock = DeviceClock(DEVICE)
    marks, expected = [], []
    for delay_s in (0.05, 0.06, 0.08):
        device.delay_s = delay_s
        expected.append(perf_counter() + delay_s)
        marks.append(clock.mark())
    assert (clock.is_host, device.num_waits) == (False, 0)
    # Times of the host may be among them, as of actions that are not the device's.
    found = clock.seconds([marks[0], 1.5, *marks[1:]])
    assert device.num_waits == 1
    assert found.pop(1) == 1.5
    assert found == pytest.approx(expected, abs=0.01)
    assert clock.seconds([1.5, 2.5]) == [1.5, 2.5]
    assert device.num_waits == 1
