"""Sends in progress. One thread of a rank waits for them and releases their tensors, so that nothing else waits.

Waking that thread takes longer than a send. It gets small messages, which hold little memory, in batches.
"""

import atexit
import queue
import threading
from typing import Any

from torch import Tensor

from penstock.dist import Describe, exit_now, wait_for
from penstock.errors import RunError

SMALL_BYTES = 1 << 15
MAX_SMALL = 256
"""Small sends that are not handed to the thread yet; waiting for a completed send takes no time."""

Sent = tuple[Any, Tensor, Describe]
"""A work handle, and the tensor that must stay alive until it has completed."""


class SendQueue:
    """The sends of one rank.

    Args:
        timeout_s: Deadline of a send.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._queue: queue.SimpleQueue[list[Sent] | None] = queue.SimpleQueue()
        self._small: list[Sent] = []
        self._small_lock = threading.Lock()
        """Several threads may send."""
        self._errors: list[RunError] = []
        self._is_noticed = False
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._wait_for_sends, name="penstock-sends", daemon=True)
        self._thread.start()
        atexit.register(self._exit)

    def add(self, work: Any, held: Tensor, describe: Describe) -> None:
        """Add a send; `held` stays alive until it has completed."""
        if held.nbytes > SMALL_BYTES:
            self._queue.put([(work, held, describe)])
            return
        with self._small_lock:
            self._small.append((work, held, describe))
        if len(self._small) >= MAX_SMALL:
            self.hand_over()

    def hand_over(self) -> None:
        """Hand the small sends to the thread that waits."""
        with self._small_lock:
            small, self._small = self._small, []
        if small:
            self._queue.put(small)

    def note_error(self, error: RunError) -> None:
        """Record that a send has failed. The next `check` raises the error."""
        self._errors.append(error)

    def check(self) -> None:
        """Raise the first error of the sends so far."""
        if self._errors:
            self._is_noticed = True
            raise self._errors[0]

    @property
    def unnoticed(self) -> RunError | None:
        """The first error, as long as no call of `check` has raised it."""
        return self._errors[0] if self._errors and not self._is_noticed else None

    def close(self) -> None:
        """Block until everything that was sent has arrived."""
        atexit.unregister(self._exit)
        self.hand_over()
        self._queue.put(None)
        self._thread.join(self._timeout_s)
        self.check()

    def abandon(self) -> None:
        """Do not block the exit of the process, because the run has failed."""
        self._is_abandoned = True
        # Releasing a send that has not completed would block. The thread keeps them instead.
        self.hand_over()
        self._queue.put(None)

    def _exit(self) -> None:
        """At exit: messages in transit would be lost, so wait for them, unless the run has failed."""
        if not self._is_abandoned:
            self.close()
        elif self._thread.is_alive():
            # The thread waits inside the network library. If that returns while Python shuts down, the process aborts.
            exit_now(1)

    def _wait_for_sends(self) -> None:
        while (items := self._queue.get()) is not None:
            while items:
                work, held, describe = items.pop()
                try:
                    wait_for(work, self._timeout_s, describe)
                except RunError as error:
                    self.note_error(error)
                del work, held, describe
