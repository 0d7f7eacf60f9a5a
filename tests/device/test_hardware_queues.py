"""A warning where the environment leaves a device one hardware queue."""

import logging

import pytest
import torch

from penstock.device.hardware_queues import warn_of_one_queue


@pytest.mark.parametrize(
    ("device", "setting", "expected"),
    [("cuda:0", "1", True), ("cuda:0", "8", False), ("cuda:0", None, False), ("cpu", "1", False), ("xpu", "1", False)],
)
def test_it_warns_once_of_one_queue(
    device: str, setting: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    if setting is not None:
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", setting)
    warn_of_one_queue.cache_clear()
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(2):
            warn_of_one_queue(torch.device(device))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == int(expected)
    assert all("CUDA_DEVICE_MAX_CONNECTIONS=1: all streams of cuda:0 share one hardware queue" in text for text in said)
    warn_of_one_queue.cache_clear()
