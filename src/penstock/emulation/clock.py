"""The clock of a device that sleeps instead of computing, and stays on schedule.

An action starts when the previous one has ended and its inputs have arrived. The time that the runtime itself takes
around an action does not belong to the device. The end of an action is therefore computed from the end of the previous
one, or from the arrival of the last input that was waited for, and the device sleeps only for the rest.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Lateness:
    """How late the actions of a device were in an iteration."""

    num_jobs: int = 0
    asleep_s: float = 0.0
    """Total duration of the actions, as planned."""
    woken_s: float = 0.0
    """Total time by which sleeps ended late."""
    overrun_s: float = 0.0
    """Total time by which the runtime took longer than the action around which it runs."""


class DeviceClock:
    """The time of one emulated device. Implements `penstock.runtime.executor.Clock`.

    Args:
        waited_until: Returns when the last message arrived that the rank had to wait for.
    """

    def __init__(self, waited_until: Callable[[], float]) -> None:
        self._waited_until = waited_until
        self.pace: Callable[[], float] = lambda: 1.0
        """Returns for each action by how much longer than planned it takes."""
        self._free_s = 0.0
        self._ended_s = 0.0
        self._span_s: tuple[float, float] | None = None
        self._has_waited = False
        self.lateness = Lateness()

    def begin(self, at_s: float) -> None:
        """Start an iteration at a time of `time.perf_counter`; sleep until then."""
        self._free_s = self._ended_s = at_s
        self._span_s = None
        self.lateness = Lateness()
        _sleep_until(at_s)

    def work(self, seconds: float) -> None:
        """Occupy the device for a duration; sleep until it is over."""
        waited_until_s = self._waited_until()
        has_waited = waited_until_s > self._free_s
        begin_s = max(self._free_s, waited_until_s)
        seconds *= self.pace()
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
        # The previous action may have ended late.
        began_s = max(begin_s, self._ended_s)
        if self._span_s is None:
            self._has_waited = has_waited
        else:
            began_s = self._span_s[0]
        self._ended_s = time.perf_counter()
        self._span_s = began_s, self._ended_s

    def take_span(self, ready_s: float) -> tuple[float, float] | None:
        """Return start and end of the work since the last call; None if there was none.

        The runtime's own time before the work counts as work, as the device sleeps that much less. Work that had to
        wait for its inputs starts at `ready_s`.
        """
        span_s, self._span_s = self._span_s, None
        return (ready_s, span_s[1]) if span_s is not None and self._has_waited else span_s


def _sleep_until(at_s: float) -> float:
    """Sleep until a time of `time.perf_counter`. Return by how much the sleep was too long."""
    while (left_s := at_s - time.perf_counter()) > 0:
        time.sleep(left_s)
    return -left_s
