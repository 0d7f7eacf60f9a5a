"""Backends of torch.distributed by device."""

import pytest
import torch

from penstock.device import backend_for, group_backend, is_tagged
from penstock.errors import InputError


@pytest.mark.parametrize(
    ("device", "backend", "group"),
    [("cpu", "gloo", "gloo"), ("cuda:1", "nccl", "cpu:gloo,cuda:nccl"), ("xpu", "xccl", "cpu:gloo,xpu:xccl")],
)
def test_each_device_has_a_backend(device: str, backend: str, group: str) -> None:
    assert backend_for(torch.device(device)) == backend
    assert group_backend(torch.device(device)) == group


def test_a_device_without_a_backend_is_refused() -> None:
    with pytest.raises(InputError, match="has no backend for vulkan"):
        backend_for(torch.device("vulkan"))


def test_only_gloo_has_tags() -> None:
    assert [is_tagged(name) for name in ("gloo", "nccl", "xccl")] == [True, False, False]
