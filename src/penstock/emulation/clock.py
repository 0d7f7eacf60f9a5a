"""A device that sleeps instead of computing, and is on time all the same.

A job begins when the one before it has ended and what it waits for is there. What the runtime itself takes around a
job is not the device's time: so the end of a job is worked out from the end of the one before, or from the moment at
which the last that was waited for came, and only what is left until then is slept.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Lateness:
    """How far a device was behind its own time."""

    num_jobs: int = 0
    asleep_s: float = 0.0
    """What jobs took as they should."""
    woken_s: float = 0.0
    """By how much sleeps ended late, in all."""
    overrun_s: float = 0.0
    """By how much jobs were over before their sleep could begin, in all: the runtime took longer than the job."""


class DeviceClock:
    """The time of one device. `waited_until` says when something came that had to be waited for, the last time."""

    def __init__(self, waited_until: Callable[[], float]) -> None:
        self._waited_until = waited_until
        self._free_s = 0.0
        self._ended_s = 0.0
        self._span_s: tuple[float, float] | None = None
        self._has_waited = False
        self.lateness = Lateness()

    def begin(self, at_s: float) -> None:
        """An iteration begins at that moment of time.perf_counter."""
        self._free_s = self._ended_s = at_s
        self._span_s = None
        self.lateness = Lateness()
        _sleep_until(at_s)

    def work(self, seconds: float) -> None:
        """Be busy for so long."""
        waited_until_s = self._waited_until()
        has_waited = waited_until_s > self._free_s
        begin_s = max(self._free_s, waited_until_s)
        self._free_s = end_s = begin_s + seconds
        before = self.lateness
        early_s = end_s - time.perf_counter()
        woken_s = _sleep_until(end_s) if early_s > 0 else 0.0
        self.lateness = Lateness(
            before.num_jobs + 1,
            before.asleep_s + seconds,
            before.woken_s + woken_s,
            before.overrun_s + max(0.0, -early_s),
        )
        # Not before the end of the one before, which may have come late.
        began_s = max(begin_s, self._ended_s)
        if self._span_s is None:
            self._has_waited = has_waited
        else:
            began_s = self._span_s[0]
        self._ended_s = time.perf_counter()
        self._span_s = began_s, self._ended_s

    def take_span(self, ready_s: float) -> tuple[float, float] | None:
        """When the work since the last call began and ended, if there was any.

        What the runtime does before it is the device's time, as it sleeps for so much less; but what had to be waited
        for is first there at `ready_s`.
        """
        span_s, self._span_s = self._span_s, None
        return (ready_s, span_s[1]) if span_s is not None and self._has_waited else span_s


def _sleep_until(at_s: float) -> float:
    """Sleep; gives by how much it was too long."""
    while (left_s := at_s - time.perf_counter()) > 0:
        time.sleep(left_s)
    return -left_s
