"""How far the host runs ahead of its device."""

from collections import deque
from typing import Any

import torch

from penstock.device.selection import is_accelerator


class RunAhead:
    """Bounds the work that the host has queued on a device and that the device has not done.

    Work in flight holds memory: messages until they are sent, and batches until they are used.

    Args:
        device: The device. A CPU runs its work at once.
        limit: How many pieces of work may be queued.
    """

    def __init__(self, device: torch.device, limit: int) -> None:
        self._device = device
        self._limit = max(1, limit)
        self._queued: deque[Any] | None = deque() if is_accelerator(device) else None

    def note(self) -> None:
        """After a piece of work was queued: block while the device is too far behind."""
        if self._queued is None:
            return
        event = torch.Event(self._device)
        event.record(torch.accelerator.current_stream(self._device))
        self._queued.append(event)
        if len(self._queued) > self._limit:
            oldest = self._queued.popleft()
            if not oldest.query():
                oldest.synchronize()
