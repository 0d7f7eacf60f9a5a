"""Message sizes of a link measurement, with a fake `Traffic` of known bandwidth."""

import itertools
from typing import TYPE_CHECKING, cast

import pytest
import torch

from penstock.probe.link_probe import (
    FIRST_BYTES,
    MAX_DEVICE_BYTES,
    MAX_HOST_BYTES,
    MAX_REPEATS,
    MIN_BYTES,
    NUM_REPEATS,
    measure_link,
)

if TYPE_CHECKING:
    from penstock.probe.traffic import Traffic

LATENCY_S = 50e-6


class FakeTraffic:
    """A link that takes `num_bytes / bandwidth` for each message; `delays` multiplies the time of each train."""

    def __init__(self, bandwidth: float, device: str = "cpu", delays: tuple[float, ...] = (1.0,)) -> None:
        self.device = torch.device(device)
        self.bandwidth = bandwidth
        self.delays = itertools.cycle(delays)
        self.trains: list[tuple[int, int, int]] = []
        self.is_finished = False

    def ping(self, _peer: int, count: int) -> list[float]:
        return [LATENCY_S] * count

    def train(self, _peer: int, first: int, num_bytes: int, count: int) -> float:
        self.trains.append((first, num_bytes, count))
        return next(self.delays) * count * num_bytes / self.bandwidth

    def finish(self, _peer: int) -> None:
        self.is_finished = True

    @property
    def sizes(self) -> list[int]:
        """Sizes of the messages that the fit uses: those of trains with several messages."""
        return [num_bytes for _, num_bytes, count in self.trains if count > 1]


@pytest.mark.parametrize(
    ("bandwidth", "largest"),
    [
        (1e12, MAX_HOST_BYTES),  # never long enough: the limit
        (1e9, MAX_HOST_BYTES),
        (50e6, 1 << 20),  # 4 x 256 kB, which takes 5 ms
        (10e6, MIN_BYTES),  # 64 kB takes 6.6 ms, but is only one piece of the network
        (1e6, 60_000),  # MIN_BYTES would take longer than 60 ms
        (1e5, FIRST_BYTES),
    ],
)
def test_messages_are_as_large_as_the_link_allows(bandwidth: float, largest: int) -> None:
    traffic = FakeTraffic(bandwidth)
    fit = measure_link(cast("Traffic", traffic), 1)
    assert max(traffic.sizes) == pytest.approx(largest, rel=0.01)
    assert sorted(set(traffic.sizes)) == [max(traffic.sizes) // part for part in (4, 2, 1)]
    # Each train starts with a message of the largest size, which is not timed, and times the same number of bytes.
    assert all(first == max(traffic.sizes) for first, _, count in traffic.trains if count > 1)
    assert {num_bytes * count // traffic.sizes[0] for _, num_bytes, count in traffic.trains if count > 1} <= {2, 3}
    assert fit.bandwidth == pytest.approx(bandwidth, rel=1e-6)
    assert fit.latency_s == LATENCY_S
    assert fit.residual == pytest.approx(0, abs=1e-6)
    assert traffic.is_finished


def test_links_of_gpus_use_larger_messages() -> None:
    traffic = FakeTraffic(1e12, device="cuda")
    measure_link(cast("Traffic", traffic), 1)
    assert max(traffic.sizes) == MAX_DEVICE_BYTES


def test_trains_are_repeated_until_they_are_steady() -> None:
    steady, unsteady = FakeTraffic(1e9), FakeTraffic(1e9, delays=(1.0, 1.5, 2.2, 3.3, 5.0))
    for traffic in (steady, unsteady):
        measure_link(cast("Traffic", traffic), 1)
    assert len(steady.sizes) == 3 * NUM_REPEATS
    assert len(unsteady.sizes) == 3 * MAX_REPEATS
