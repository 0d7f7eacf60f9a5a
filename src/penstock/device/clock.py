"""When a device does its work, on the clock of the host."""

from collections.abc import Sequence
from time import perf_counter
from typing import TypeAlias

import torch

from penstock.device.selection import is_accelerator

Mark: TypeAlias = float | torch.Event
"""A point of time: seconds of `time.perf_counter`, or an event of a device that is converted to it later."""


class DeviceClock:
    """The clock of one device.

    A mark costs no wait: an accelerator notes the time itself when its current stream gets there. Converting marks
    waits for the device once.

    Args:
        device: The device. On a CPU a mark is the time of the call.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._has_events = is_accelerator(device)

    @property
    def is_host(self) -> bool:
        """Whether marks are times of the host."""
        return not self._has_events

    def mark(self) -> Mark:
        """Return a mark at the present end of the current stream."""
        if not self._has_events:
            return perf_counter()
        event = torch.Event(self._device, enable_timing=True)
        event.record(torch.accelerator.current_stream(self._device))
        return event

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Convert marks to seconds of `time.perf_counter`. Block until the device has reached all of them."""
        if not self._has_events or not any(isinstance(mark, torch.Event) for mark in marks):
            return [mark for mark in marks if isinstance(mark, float)]
        torch.accelerator.synchronize(self._device)
        # Distances to the present: an event's clock counts milliseconds in single precision.
        now = self.mark()
        assert isinstance(now, torch.Event), "the device has events"
        now.synchronize()
        now_s = perf_counter()
        return [mark if isinstance(mark, float) else now_s - mark.elapsed_time(now) / 1e3 for mark in marks]
