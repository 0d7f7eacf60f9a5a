"""Several transfers at the same time: the rate of each while all are under way.

Something else on a host may slow a crowd for a moment, and a transfer that starts late leaves its share to the others
until then. So a crowd is measured until two attempts agree, or one agrees with what its transfers have alone.
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
"""Between the word to start and the first message, so that all have heard it on a way that is still free."""
SETTLE_S = 20.0
"""So long a crowd may take by itself, over slow links."""
CROWD_S = 0.4
"""So long a transfer of a crowd would take alone."""
CROWD_MESSAGES = 50
CROWD_PART = 0.8
"""Of that time counts so much: later, the fastest may have ended."""
AGREE = 0.97
"""Attempts agree if what they carry in all differs by no more than this factor."""
MAX_ATTEMPTS = 5


def measure_crowd(group: Group, traffic: Traffic, flows: Sequence[Flow], what: str) -> list[float]:
    """The rate of each transfer. All ranks call this, those that take no part too, and all get the same."""
    attempts: list[list[float]] = []
    while (found := agreed_rates(flows, attempts)) is None:
        attempts.append(_attempt(group, traffic, flows, what))
    return found


def agreed_rates(flows: Sequence[Flow], attempts: Sequence[list[float]]) -> list[float] | None:
    """The rates that two attempts agree on, the slower of the fastest two that do; None if it takes more attempts.

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
        for place, flow in enumerate(flows):
            if flow.target == group.rank:
                posted[place] = traffic.receiving(flow.source, [message_bytes(flow)] * (CROWD_MESSAGES + 1))

    def go() -> dict[int, float]:
        time.sleep(START_S)
        receivers = [_Receiver(group, traffic, flows[place], items) for place, items in posted.items()]
        mine = [flow for flow in flows if flow.source == group.rank]
        traffic.send_all([(flow.target, message_bytes(flow), CROWD_MESSAGES + 1) for flow in mine])
        return {place: receiver.rate() for place, receiver in zip(posted, receivers, strict=True)}

    group.gather(type(None), prepare, what)
    rates: dict[int, float] = {}
    for found in group.gather(dict[int, float], go, what, more_s=SETTLE_S):
        rates |= found
    return [rates[place] for place in range(len(flows))]


class _Receiver(threading.Thread):
    """A thread for each transfer that comes in, as each is timed for itself."""

    def __init__(self, group: Group, traffic: Traffic, flow: Flow, posted: Sequence[Any]) -> None:
        super().__init__(name="penstock-probe", daemon=True)
        self._group, self._traffic, self._flow, self._posted = group, traffic, flow, posted
        self._arrived_s: list[float] = []
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            with self._group.waiting_for(self._flow.source, "receiving from"):
                self._arrived_s = self._traffic.arrivals(self._posted)
        except Exception as error:
            self._error = error

    def rate(self) -> float:
        """The rate, when all has come."""
        self.join(self._group.timeout_s + SETTLE_S)
        if self._error is not None:
            raise self._error
        if not self._arrived_s:
            who = f"{self._group.names[self._group.rank]}, receiving from {self._group.names[self._flow.source]}"
            raise RuntimeTimeout(f"{who}: it takes too long", hint="Is the link much slower at times?")
        return busy_rate(self._flow, self._arrived_s)


def message_bytes(flow: Flow) -> int:
    """How large the messages of a crowd's transfer are: each takes the same time, were it alone."""
    return max(256, int(flow.alone * CROWD_S / CROWD_MESSAGES))


def busy_rate(flow: Flow, arrived_s: Sequence[float]) -> float:
    """The rate while all of a crowd are under way, from when each message has arrived."""
    end_s = arrived_s[0] + CROWD_PART * CROWD_S
    number = max(1, sum(when <= end_s for when in arrived_s[1:]))
    return number * message_bytes(flow) / max(arrived_s[number] - arrived_s[0], 1e-9)
