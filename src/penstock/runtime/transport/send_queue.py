"""Sends under way. One thread of a rank waits for them to end and lets go of what was sent, so nothing else waits.

To wake it takes longer than to send: it gets small messages, which hold no memory to speak of, many at once.
"""

import atexit
import os
import queue
import sys
import threading
from typing import Any

from torch import Tensor

from penstock.dist import Tell, wait_for
from penstock.errors import RunError

SMALL_BYTES = 1 << 15
MOST_SMALL = 256
"""Small sends that nobody has waited for yet; those that were in time take none."""

Sent = tuple[Any, Tensor, Tell]
"""A send, and what must stay until it has ended."""


class Sends:
    """Those of one rank."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._outbox: queue.SimpleQueue[list[Sent] | None] = queue.SimpleQueue()
        self._small: list[Sent] = []
        self._small_lock = threading.Lock()
        """Several threads may send."""
        self._failed: list[RunError] = []
        self._given_up = False
        self._thread = threading.Thread(target=self._watch, name="penstock-sends", daemon=True)
        self._thread.start()
        atexit.register(self._leave)

    def add(self, work: Any, held: Tensor, tell: Tell) -> None:
        """One more."""
        if held.nbytes > SMALL_BYTES:
            self._outbox.put([(work, held, tell)])
            return
        with self._small_lock:
            self._small.append((work, held, tell))
        if len(self._small) >= MOST_SMALL:
            self.hand_over()

    def hand_over(self) -> None:
        """Let the small ones so far be waited for."""
        with self._small_lock:
            small, self._small = self._small, []
        if small:
            self._outbox.put(small)

    def note(self, error: RunError) -> None:
        """A send has failed: whoever asks next hears of it."""
        self._failed.append(error)

    def check(self) -> None:
        """Raise what went wrong in the meantime."""
        if self._failed:
            raise self._failed[0]

    def close(self) -> None:
        """Wait until everything sent has arrived."""
        atexit.unregister(self._leave)
        self.hand_over()
        self._outbox.put(None)
        self._thread.join(self._timeout_s)
        self.check()

    def give_up(self) -> None:
        """The run has failed: nothing on its way holds the process up."""
        self._given_up = True
        # To let go of a send that has not ended would wait for it: the thread has them.
        self.hand_over()
        self._outbox.put(None)

    def _leave(self) -> None:
        """The process ends. What is on its way would be lost with it, so wait, unless the run has failed."""
        if not self._given_up:
            self.close()
        elif self._thread.is_alive():
            # It waits inside the network library. If that lets go of it while Python shuts down, the process aborts.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def _watch(self) -> None:
        while (items := self._outbox.get()) is not None:
            while items:
                work, held, tell = items.pop()
                try:
                    wait_for(work, self._timeout_s, tell)
                except RunError as error:
                    self.note(error)
                del work, held, tell
