"""Deadlines of messages that the device waits for, and not the host.

A stream waits for a message without a deadline, and the host may be stuck in a call of the device that waits for the
stream. One thread of a rank therefore watches these messages. If one is overdue, the next call of the transport raises
the error. If there is none, because the host is stuck, the thread ends the process.
"""

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

from penstock.dist import Describe, translate_error
from penstock.errors import RunError
from penstock.runtime.transport.send_queue import SendQueue

LOOK_EVERY_S = 0.02
STUCK_S = 5.0
"""A host that has not raised the error of an overdue message after this time is stuck."""

OnStuck = Callable[[RunError], None]


class DeviceWatch:
    """The messages that the device of one rank waits for.

    Args:
        timeout_s: Deadline of every message.
        errors: Takes the error of an overdue message. Errors of its own sends count as well.
    """

    def __init__(self, timeout_s: float, errors: SendQueue) -> None:
        self._timeout_s = timeout_s
        self._errors = errors
        self._waits: list[tuple[float, Any, Describe]] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self.on_stuck: OnStuck = lambda _error: None
        """Ends the process. Called from the thread."""

    def start(self) -> None:
        """Start watching."""
        self._thread = threading.Thread(target=self._watch, name="penstock-device-watch", daemon=True)
        self._thread.start()

    def add(self, work: Any, describe: Describe) -> None:
        """Watch a message whose `is_completed` can be asked."""
        with self._lock:
            self._waits.append((perf_counter() + self._timeout_s, work, describe))

    @property
    def num_pending(self) -> int:
        """Number of messages that have not been seen to arrive."""
        return len(self._waits)

    def close(self) -> None:
        """Stop watching."""
        self._is_over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STUCK_S)

    def _watch(self) -> None:
        stuck_s: float | None = None
        while not self._is_over.wait(LOOK_EVERY_S):
            self._look()
            if self._errors.unnoticed is None:
                stuck_s = None
            elif stuck_s is None:
                stuck_s = perf_counter() + STUCK_S
            elif perf_counter() > stuck_s:
                self._is_over.set()
                self.on_stuck(self._errors.unnoticed)

    def _look(self) -> None:
        """Forget the messages that have arrived, and note the error of the first one that is overdue."""
        with self._lock:
            waits = list(self._waits)
        done = {id(work) for _, work, _ in waits if work.is_completed()}
        now_s = perf_counter()
        for until_s, work, describe in waits:
            if now_s > until_s and id(work) not in done:
                done.add(id(work))
                self._errors.note_error(translate_error(RuntimeError("timed out"), describe, self._timeout_s))
        if done:
            with self._lock:
                self._waits = [item for item in self._waits if id(item[1]) not in done]
