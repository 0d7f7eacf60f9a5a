"""Heartbeats: when one rank fails, all ranks exit soon, and one of them prints the status of each.

A thread on every rank writes the rank's status into the store of torch.distributed twice a second. The first rank that
fails marks the run as failed in the store, waits a moment for the final status of the other ranks, and adds the status
table to its error. The other ranks fail by themselves, as their connections break. A rank that does not, because it
blocks in a call that cannot be interrupted, is ended by its thread. SIGTERM from the launcher is delayed meanwhile.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from penstock.dist import delay_sigterm, exit_with_message, open_status_store, status_board
from penstock.errors import StatusTable
from penstock.runtime.health.status import BEAT_S, RankStatus, StatusRecord, format_status_table

GATHER_S = 2.5
"""How long the first rank that fails waits for the final status of the others."""
STAY_S = 1.0
"""How long other ranks stay after the table is printed: the launcher may end all ranks when the first has exited."""
EXIT_S = GATHER_S + GATHER_S + STAY_S + 2.0
"""A failed rank that has not reported by then exits without the table."""
STUCK_S = 3.0
"""A rank that has not failed by itself this long after another one is ended."""

EXIT_CODE = 1

_log = logging.getLogger(__name__)


class Heartbeat:
    """The heartbeat of one rank. Collective: every rank of the group must create one.

    Args:
        group: The control group.
        devices: Names of the devices in use, by rank.
        read_status: Returns what this rank does at the moment. Called from another thread.
        on_failure: Called first when this rank fails; it must release what would keep the process from exiting.
    """

    def __init__(
        self, group: Any, devices: Sequence[str], read_status: Callable[[], RankStatus], on_failure: Callable[[], None]
    ) -> None:
        self._rank = dist.get_rank(group)
        self._devices = [*(name or "-" for name in devices), *["-"] * (dist.get_world_size(group) - len(devices))]
        self._read_status = read_status
        self._on_failure = on_failure
        self._store = open_status_store(f"penstock/{group.group_name}")
        self._store.set_timeout(timedelta(seconds=GATHER_S))
        self._is_over = threading.Event()
        self._write(is_final=False)
        self._thread = threading.Thread(target=self._beat, name="penstock-heartbeat", daemon=True)
        self._thread.start()
        self._restore_sigterm = delay_sigterm(lambda: f"{self._describe()}: received SIGTERM\n")

    def close(self) -> None:
        """Stop the heartbeat."""
        self._is_over.set()
        # A thread inside a request to the store must not meet the end of the interpreter: that aborts the process.
        self._thread.join(GATHER_S)
        self._restore_sigterm()

    def beat_now(self) -> None:
        """Write the status at once, without waiting for the next beat."""
        self._write(is_final=False)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Report every error raised inside the context to all ranks, which ends the run."""
        try:
            yield
        except BaseException as error:
            self.report_failure(error)
            raise

    def report_failure(self, error: BaseException) -> None:
        """Report the failure of this rank to all ranks. The first failure gets the status table as a note."""
        status_board().note_failure()
        self._on_failure()
        self._is_over.set()
        # If the process that hosts the store is stopped, or its host is lost, requests to the store never return.
        timer = threading.Timer(EXIT_S, self._exit, (error,))
        timer.daemon = True
        timer.start()
        try:
            self._report(error)
        finally:
            timer.cancel()

    def end(self, error: BaseException) -> None:
        """Report the failure of this rank and end its process, because it is stuck. Called from another thread."""
        self.report_failure(error)
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        text = f"{self._describe()}: {error}; the host is stuck in a call of its device{notes}\n"
        exit_with_message(text, EXIT_CODE)

    def _exit(self, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}\nThe status of the other ranks is not available.\n"
        exit_with_message(text, EXIT_CODE)

    def _report(self, error: BaseException) -> None:
        summary = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        first = self._rank
        with suppress(RuntimeError):
            first = json.loads(self._store.compare_set("failed", "", json.dumps([self._rank, summary])))[0]
        self._write(is_final=True)
        if first == self._rank:
            error.add_note(StatusTable(self._gather_table()))
            with suppress(RuntimeError):
                self._store.set("reported", "1")
        else:
            error.add_note(f"Rank {first} failed first. Its error contains the status of all ranks.")
            self._wait_for_report()

    def _beat(self) -> None:
        while not self._is_over.wait(BEAT_S):
            try:
                if self._store.check(["failed"]):
                    self._end_if_stuck()
                    return
            except RuntimeError:
                # The process that hosts the store has exited. Ranks that need that process notice it themselves.
                _log.info("rank %d: heartbeat lost, the store of torch.distributed is unreachable", self._rank)
                return
            self._write(is_final=False)

    def _end_if_stuck(self) -> None:
        """End this process if it is inside a step and blocks although another rank has failed."""
        self._write(is_final=True)
        self._wait_for_report()
        if self._is_over.wait(STUCK_S) or not self._read_status().is_busy:
            return
        description = self._describe()
        first, summary = json.loads(self._store.get("failed"))
        exit_with_message(f"{description}: exiting, because rank {first} failed ({summary})\n", EXIT_CODE)

    def _describe(self) -> str:
        status = self._read_status()
        return f"rank {self._rank} ({self._devices[self._rank]}), step {status.step}, {status.activity}"

    def _wait_for_report(self) -> None:
        """Wait until the first failed rank has its table. That rank may be killed before, so the wait has a limit."""
        deadline = time.monotonic() + 2 * GATHER_S
        with suppress(RuntimeError):
            while time.monotonic() < deadline and not self._store.check(["reported"]):
                time.sleep(BEAT_S / 5)
        time.sleep(STAY_S)

    def _write(self, *, is_final: bool) -> None:
        record = StatusRecord(self._read_status(), time.time(), is_final)
        with suppress(RuntimeError):
            self._store.set(str(self._rank), record.encode())

    def _read(self, rank: int) -> StatusRecord | None:
        with suppress(RuntimeError):
            if self._store.check([str(rank)]):
                return StatusRecord.decode(self._store.get(str(rank)))
        return None

    def _gather_table(self) -> str:
        ranks = range(len(self._devices))
        deadline = time.monotonic() + GATHER_S
        while True:
            records = [self._read(rank) for rank in ranks]
            if all(item is not None and item.is_final for item in records) or time.monotonic() > deadline:
                return format_status_table(self._devices, records, time.time())
            time.sleep(BEAT_S / 10)
