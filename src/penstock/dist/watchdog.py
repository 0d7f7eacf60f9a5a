"""Never a silent hang: a thread that ends the process when nothing has gone on for too long, and says at what.

Every wait of a probe has its own deadline and message. This is for the waits that cannot be broken off, inside a
library or the operating system.
"""

import os
import sys
import threading
import time

EXIT_CODE = 1


class Watchdog:
    """Bites when it has heard nothing for `limit_s`."""

    def __init__(self, limit_s: float, who: str) -> None:
        self._limit_s = limit_s
        self._who = who
        self._what = "the start"
        self._heard_s = time.monotonic()
        self._is_done = threading.Event()
        threading.Thread(target=self._watch, name="penstock-watchdog", daemon=True).start()

    def heard(self, what: str) -> None:
        """Something goes on: now it is this."""
        self._what, self._heard_s = what, time.monotonic()

    def done(self) -> None:
        """Nothing more to watch."""
        self._is_done.set()

    def _watch(self) -> None:
        while not self._is_done.wait(self._limit_s / 20):
            if time.monotonic() - self._heard_s > self._limit_s:
                text = f"error: {self._who} has been at {self._what} for {self._limit_s:g} s, and is ended\n"
                sys.stderr.write(text)
                sys.stderr.flush()
                os._exit(EXIT_CODE)
