"""Streams and events of a device that runs nothing by itself: a test decides when work is done."""

from typing import Any

import pytest
import torch

DEVICE = torch.device("cuda", 0)


class FakeStreams:
    """What the host has asked of the device. Work is done when it is waited for, or with `run`."""

    def __init__(self) -> None:
        self.num_queued = 0
        self.num_done = 0
        self.host_waits = 0
        self.stream_waits = 0

    def run(self, num: int) -> None:
        """Do the next pieces of work."""
        self.num_done = min(self.num_done + num, self.num_queued)


def pretend_streams(monkeypatch: pytest.MonkeyPatch) -> FakeStreams:
    """Replace the events and streams of torch."""
    streams = FakeStreams()

    class Event:
        def __init__(self, _device: Any = None, **_: Any) -> None:
            self.at = 0

        def record(self, _stream: Any = None) -> None:
            self.at = streams.num_queued

        def query(self) -> bool:
            return streams.num_done >= self.at

        def synchronize(self) -> None:
            streams.host_waits += 1
            streams.num_done = max(streams.num_done, self.at)

    class Stream:
        def __init__(self, _device: Any = None) -> None: ...
        def __enter__(self) -> "Stream":
            return self

        def __exit__(self, *_: object) -> None: ...
        def wait_event(self, _event: Event) -> None:
            streams.stream_waits += 1

    current = Stream()
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(torch, "Stream", Stream)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda *_: current)
    return streams
