"""A watchdog thread that ends the process when it makes no progress.

Every wait of a probe has its own deadline and message. The watchdog covers waits that cannot be interrupted, inside a
library or the operating system.
"""

import threading
import time

from penstock.dist.shutdown import exit_with_message

EXIT_CODE = 1


class Watchdog:
    """Ends the process if no progress is reported for `limit_s` seconds.

    Args:
        limit_s: Longest time between two calls of `report_progress`.
        name: Names the process in the message.
    """

    def __init__(self, limit_s: float, name: str) -> None:
        self._limit_s = limit_s
        self._name = name
        self._activity = "the start"
        self._reported_s = time.monotonic()
        self._is_stopped = threading.Event()
        threading.Thread(target=self._watch, name="penstock-watchdog", daemon=True).start()

    def report_progress(self, activity: str) -> None:
        """Restart the countdown; `activity` is what the process does from now on."""
        self._activity, self._reported_s = activity, time.monotonic()

    def stop(self) -> None:
        """Stop the countdown."""
        self._is_stopped.set()

    def _watch(self) -> None:
        while not self._is_stopped.wait(self._limit_s / 20):
            if time.monotonic() - self._reported_s > self._limit_s:
                exit_with_message(
                    f"error: {self._name} made no progress in {self._activity} for {self._limit_s:g} s; exiting\n",
                    EXIT_CODE,
                )
