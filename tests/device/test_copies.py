"""Copies between host and device."""

import pytest
import torch
from torch import Tensor

from penstock.device import HostCopy, copies, copy_to_device
from tests.device.fake_streams import DEVICE, pretend_streams


def test_on_the_cpu_nothing_is_copied() -> None:
    tensor = torch.randn(3)
    assert copy_to_device(tensor, torch.device("cpu")) is tensor
    value = torch.tensor(2.5, requires_grad=True)
    assert torch.equal(HostCopy(value).read(), value.detach())


def test_batches_go_over_without_a_wait_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = pretend_streams(monkeypatch)
    asked: list[tuple[torch.device, bool]] = []
    recorded: list[object] = []

    def to(self: Tensor, device: torch.device, *, non_blocking: bool = False) -> Tensor:
        asked.append((device, non_blocking))
        return self.clone()

    monkeypatch.setattr(Tensor, "to", to)
    monkeypatch.setattr(Tensor, "record_stream", lambda _self, stream: recorded.append(stream))
    copies._copies.cache_clear()
    tensor = torch.randn(4)
    for _ in range(3):
        streams.num_queued += 1
        assert torch.equal(copy_to_device(tensor, DEVICE), tensor)
    assert asked == [(DEVICE, True)] * 3
    assert (streams.host_waits, streams.stream_waits, len(recorded)) == (0, 3, 3)
    # Sources live until they have been read.
    assert len(copies._copies(DEVICE)._pending) == 3
    streams.run(2)
    copy_to_device(tensor, DEVICE)
    assert len(copies._copies(DEVICE)._pending) == 2
    copies._copies.cache_clear()
