"""An accelerator that torch reports, without a device behind it: for code that only selects and describes devices."""

from types import SimpleNamespace

import pytest
import torch


def pretend_accelerator(
    monkeypatch: pytest.MonkeyPatch, *, name: str, count: int, kind: str = "NVIDIA A100-SXM4-40GB"
) -> list[int]:
    """Let torch report `count` accelerators of a type. Return a list that collects the indices that become current."""
    current: list[int] = []
    generators = [torch.Generator() for _ in range(count)]
    module = SimpleNamespace(
        get_device_name=lambda _device: kind,
        default_generators=generators,
        get_device_properties=lambda index: SimpleNamespace(uuid=f"GPU-{index}"),
    )
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device(name))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    monkeypatch.setattr(torch.accelerator, "set_device_index", current.append)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: current[-1] if current else 0)
    monkeypatch.setattr(torch, "get_device_module", lambda _type: module)
    return current
