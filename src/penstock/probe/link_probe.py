"""Measurement of one link. Message sizes adapt to its speed, so that slow and fast links take about the same time."""

import statistics
from collections.abc import Sequence

from penstock.device import is_accelerator
from penstock.probe.link_fit import Sample, fit_link
from penstock.probe.traffic import Traffic
from penstock.probe.types import Fit

FIRST_BYTES = 1 << 14
MAX_HOST_BYTES = 1 << 22
MAX_DEVICE_BYTES = 1 << 27
"""Largest message between accelerators: their links are faster."""
MIN_BYTES = 1 << 19
"""Networks segment and shape traffic in pieces of up to 64 kB: a message has many, unless it would take too long."""
LONG_S = 6e-3
"""A message that takes this long is large enough; each attempt is four times as large as the one before."""
TOO_LONG_S = 60e-3
NUM_PINGS = 24
PARTS = (1, 2, 4)
NUM_TIMED = 3
"""Timed messages in a train of the largest size; trains of smaller messages have the same number of bytes."""
NUM_REPEATS = 2
STEADY = 0.03
MAX_REPEATS = 5
"""Trains are repeated until their times differ by less than `STEADY`, at most `MAX_REPEATS` times."""


def measure_link(traffic: Traffic, peer: int) -> Fit:
    """Measure the link to a peer, which runs `Traffic.serve` at the same time."""
    traffic.ping(peer, 4)
    pings_s = traffic.ping(peer, NUM_PINGS)
    num_bytes, most = FIRST_BYTES, MAX_DEVICE_BYTES if is_accelerator(traffic.device) else MAX_HOST_BYTES
    while (taken_s := traffic.train(peer, num_bytes, num_bytes, 1)) < LONG_S and num_bytes < most:
        num_bytes = min(4 * num_bytes, most)
    longest = int(num_bytes * TOO_LONG_S / taken_s)
    num_bytes = min(max(num_bytes, MIN_BYTES), max(longest, FIRST_BYTES))
    samples = [_steady_train(traffic, peer, num_bytes, part) for part in PARTS]
    pings_s += traffic.ping(peer, NUM_PINGS)
    traffic.finish(peer)
    # Other work on a machine only adds delay, so small values are accurate; the smallest may be an outlier.
    return fit_link(samples, sorted(pings_s)[1])


def _steady_train(traffic: Traffic, peer: int, largest: int, part: int) -> Sample:
    """Return the size and seconds of one message: the median over several trains."""
    num_bytes, count = largest // part, NUM_TIMED * part
    taken_s: list[float] = []
    while len(taken_s) < NUM_REPEATS or (len(taken_s) < MAX_REPEATS and not _is_steady(taken_s)):
        taken_s.append(max(traffic.train(peer, largest, num_bytes, count), 1e-9))
    return num_bytes, statistics.median(taken_s) / count


def _is_steady(taken_s: Sequence[float]) -> bool:
    """Return whether the two middle values agree."""
    ordered = sorted(taken_s)
    middle = len(ordered) // 2
    return ordered[middle] - ordered[middle - 1] <= STEADY * ordered[middle]
