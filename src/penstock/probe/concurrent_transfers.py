"""Measurement of concurrent transfers: the rate of each while all are active.

Other work on a host may slow transfers for a moment, and a transfer that starts late leaves its share to the others.
Attempts are repeated until two agree, or one agrees with the rates of the transfers alone.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

from penstock.errors import RuntimeTimeout
from penstock.probe.rank_group import Group
from penstock.probe.traffic import Traffic
from penstock.probe.types import Flow

START_S = 0.05
"""Delay between the start signal and the first message, so that the signal reaches all ranks over an idle network."""
SETTLE_S = 20.0
"""Time limit of an attempt over slow links."""
FLOW_S = 0.4
"""Duration of each transfer if it were alone."""
NUM_MESSAGES = 50
COUNTED_PART = 0.8
"""Fraction of `FLOW_S` that counts: later, the fastest transfer may have ended."""
AGREE = 0.97
"""Attempts agree if the ratio of their total rates is at least this."""
MAX_ATTEMPTS = 5


def measure_concurrent(group: Group, traffic: Traffic, flows: Sequence[Flow], what: str) -> list[float]:
    """Return the rate of each transfer. All ranks call this, also those without a transfer, with the same result."""
    attempts: list[list[float]] = []
    while (rates := agreed_rates(flows, attempts)) is None:
        attempts.append(_attempt(group, traffic, flows, what))
    return rates


def agreed_rates(flows: Sequence[Flow], attempts: Sequence[list[float]]) -> list[float] | None:
    """Return the rates that two attempts agree on, the slower of the fastest two that do; None if more are needed.

    >>> both = [Flow(source=0, target=2, alone=60.0), Flow(source=1, target=3, alone=60.0)]
    >>> agreed_rates(both, [[60.0, 59.0]])
    [60.0, 59.0]
    >>> agreed_rates(both, [[24.0, 25.0], [30.0, 31.0]])
    >>> agreed_rates(both, [[24.0, 25.0], [30.0, 31.0], [30.0, 30.0]])
    [30.0, 30.0]
    """
    fastest = sorted(attempts, key=sum, reverse=True)
    bounds = [sum(flow.alone for flow in flows), *map(sum, fastest)]
    for bound, rates in zip(bounds, fastest, strict=False):
        if sum(rates) >= AGREE * bound:
            return rates
    return fastest[1] if len(attempts) == MAX_ATTEMPTS else None


def _attempt(group: Group, traffic: Traffic, flows: Sequence[Flow], what: str) -> list[float]:
    posted: dict[int, list[Any]] = {}

    def prepare() -> None:
        for index, flow in enumerate(flows):
            if flow.target == group.rank:
                posted[index] = traffic.post_receives(flow.source, [message_bytes(flow)] * (NUM_MESSAGES + 1))

    def transfer() -> dict[int, float]:
        time.sleep(START_S)
        receivers = [_Receiver(group, traffic, flows[index], items) for index, items in posted.items()]
        outgoing = [flow for flow in flows if flow.source == group.rank]
        traffic.send_all([(flow.target, message_bytes(flow), NUM_MESSAGES + 1) for flow in outgoing])
        return {index: receiver.rate() for index, receiver in zip(posted, receivers, strict=True)}

    group.gather(type(None), prepare, what)
    rates: dict[int, float] = {}
    for rates_of_rank in group.gather(dict[int, float], transfer, what, extra_s=SETTLE_S):
        rates |= rates_of_rank
    return [rates[index] for index in range(len(flows))]


class _Receiver(threading.Thread):
    """A thread that times one incoming transfer."""

    def __init__(self, group: Group, traffic: Traffic, flow: Flow, posted: Sequence[Any]) -> None:
        super().__init__(name="penstock-probe", daemon=True)
        self._group, self._traffic, self._flow, self._posted = group, traffic, flow, posted
        self._arrived_s: list[float] = []
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            with self._group.translate_errors(self._flow.source, "receiving from"):
                self._arrived_s = self._traffic.wait_arrivals(self._posted)
        except Exception as error:
            self._error = error

    def rate(self) -> float:
        """Wait for all messages and return the rate."""
        self.join(self._group.timeout_s + SETTLE_S)
        if self._error is not None:
            raise self._error
        if not self._arrived_s:
            who = f"{self._group.names[self._group.rank]}, receiving from {self._group.names[self._flow.source]}"
            hint = "Check whether the link is much slower at times."
            raise RuntimeTimeout(f"{who}: timed out", hint=hint)
        return busy_rate(self._flow, self._arrived_s)


def message_bytes(flow: Flow) -> int:
    """Return the message size of a transfer, chosen so that all transfers would take the same time alone."""
    return max(256, int(flow.alone * FLOW_S / NUM_MESSAGES))


def busy_rate(flow: Flow, arrived_s: Sequence[float]) -> float:
    """Return the rate while all transfers are active, from the arrival times of the messages."""
    end_s = arrived_s[0] + COUNTED_PART * FLOW_S
    number = max(1, sum(when <= end_s for when in arrived_s[1:]))
    return number * message_bytes(flow) / max(arrived_s[number] - arrived_s[0], 1e-9)
