"""Memory of a device."""

import pytest
import torch

from penstock.device import MemoryUse, memory_use
from tests.device.fake_streams import DEVICE


def test_the_allocator_of_the_cpu_does_not_count() -> None:
    assert memory_use(torch.device("cpu")) is None


def test_memory_beside_the_allocator_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"max_memory_allocated": 30, "max_memory_reserved": 50, "memory_reserved": 40}
    for name, value in values.items():
        monkeypatch.setattr(torch.accelerator, name, lambda _device, value=value: value)
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda _device: (35, 100))
    assert memory_use(DEVICE) == MemoryUse(peak_bytes=30, reserved_bytes=50, outside_bytes=25, total_bytes=100)
