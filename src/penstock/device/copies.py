"""Copies between host and device that block neither the host nor the computation."""

from collections import deque
from functools import cache
from typing import Any

import torch
from torch import Tensor

from penstock.device.selection import is_accelerator


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device.

    From host memory, an accelerator copies it on a stream of its own, as soon as the host asks for it; the current
    stream waits for the copy. The host does not.
    """
    if not is_accelerator(device) or tensor.device.type != "cpu":
        return tensor.to(device)
    return _copies(device).start(tensor)


class HostCopy:
    """A tensor on its way to host memory. The host waits for it only when it reads the value.

    Args:
        tensor: The tensor, which is complete when the current stream has run what is queued on it.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._source = tensor.detach()
        self._value = self._source
        self._event: Any = None
        if is_accelerator(tensor.device):
            self._value = _pinned(torch.empty_like(self._source, device="cpu"))
            self._value.copy_(self._source, non_blocking=True)
            self._event = torch.Event(tensor.device)
            self._event.record(torch.accelerator.current_stream(tensor.device))

    def read(self) -> Tensor:
        """Return the tensor in host memory. Block until it is there."""
        if self._event is not None:
            self._event.synchronize()
            self._event = None
        return self._value


class _CopyStream:
    """The copies to one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)
        self._pending: deque[tuple[Any, Tensor]] = deque()
        """Copies that may not have read their source yet."""

    def start(self, tensor: Tensor) -> Tensor:
        """Return the tensor on the device. The current stream waits for it."""
        while self._pending and self._pending[0][0].query():
            self._pending.popleft()
        source = _pinned(tensor)
        with self._stream:
            moved = source.to(self._device, non_blocking=True)
        event = torch.Event(self._device)
        event.record(self._stream)
        current = torch.accelerator.current_stream(self._device)
        current.wait_event(event)
        # The memory belongs to the stream of copies, and is used on another one.
        moved.record_stream(current)
        self._pending.append((event, source))
        return moved


@cache
def _copies(device: torch.device) -> _CopyStream:
    return _CopyStream(device)


def _pinned(tensor: Tensor) -> Tensor:
    """The tensor in pinned memory. A device without it copies from any memory, and may block the host."""
    try:
        return tensor if tensor.is_pinned() else tensor.pin_memory()
    except (RuntimeError, NotImplementedError):
        return tensor
