"""Ranks that keep an eye on each other: when one fails, all end soon, and one of them tells what each did last.

A thread on every rank writes twice a second into the store of torch.distributed what the rank is doing. The first rank
that fails says so there, waits a moment for the last words of the others, and puts the table of them below its error.
The others fail by themselves, as connections to it break. One that does not, because it is stuck in a wait that cannot
be broken off, is ended by its thread. Whoever started the ranks may tell all to end before: they do so a little later.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store

from penstock.dist import end_late

BEAT_S = 0.5
GATHER_S = 2.5
"""How long the first to fail waits for the last words of the others."""
TOLD_S = 1.0
"""How long others stay when the table is told: whoever started them may end all when the first has gone."""
LEAVE_S = GATHER_S + GATHER_S + TOLD_S + 2.0
"""One that has not told all by then ends without."""
STUCK_S = 3.0
"""A rank that has not failed by itself so long after another did is ended."""
SILENT_S = 3 * BEAT_S
"""One that has written nothing for so long has ended, or is stopped."""

EXIT_CODE = 1


@dataclass(frozen=True)
class Doing:
    """What a rank does at a moment."""

    step: int
    what: str
    for_s: float
    is_busy: bool
    """Whether it is inside a step, so that others may depend on it."""


@dataclass(frozen=True)
class Words:
    """What a rank wrote down last."""

    doing: Doing
    written_s: float
    is_last: bool


class Watch:
    """One rank's part in that."""

    def __init__(
        self, group: Any, devices: Sequence[str], look: Callable[[], Doing], give_up: Callable[[], None]
    ) -> None:
        """`look` says what this rank does, `give_up` lets go of what would hold it up when it has failed."""
        self._rank = dist.get_rank(group)
        self._devices = [*devices, *["-"] * (dist.get_world_size(group) - len(devices))]
        self._look = look
        self._give_up = give_up
        self._store = PrefixStore(f"penstock/{group.group_name}", _own_connection())
        self._store.set_timeout(timedelta(seconds=GATHER_S))
        self._ended = threading.Event()
        self._write(is_last=False)
        self._thread = threading.Thread(target=self._beat, name="penstock-watch", daemon=True)
        self._thread.start()
        self._end_at_once = end_late(lambda: f"{self._where()}: told to end (SIGTERM)\n")

    def close(self) -> None:
        """Nothing more to watch."""
        self._ended.set()
        self._end_at_once()

    def write_now(self) -> None:
        """Write down what this rank does, without waiting for the next beat."""
        self._write(is_last=False)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """What fails meanwhile ends the run on all ranks."""
        try:
            yield
        except BaseException as error:
            self.failed(error)
            raise

    def failed(self, error: BaseException) -> None:
        """Tell all that this rank has failed; the error gets what is known of them."""
        self._give_up()
        self._ended.set()
        # If whoever keeps the store is stopped, or its host is lost, what is asked of it never comes back.
        leaving = threading.Timer(LEAVE_S, self._leave, (error,))
        leaving.daemon = True
        leaving.start()
        try:
            self._tell(error)
        finally:
            leaving.cancel()

    def _leave(self, error: BaseException) -> None:
        sys.stderr.write(f"{type(error).__name__}: {error}\nThe other ranks cannot be asked what they did last.\n")
        sys.stderr.flush()
        os._exit(EXIT_CODE)

    def _tell(self, error: BaseException) -> None:
        mine = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        first = self._rank
        with suppress(RuntimeError):
            first = json.loads(self._store.compare_set("failed", "", json.dumps([self._rank, mine])))[0]
        self._write(is_last=True)
        if first == self._rank:
            error.add_note(self._table())
            with suppress(RuntimeError):
                self._store.set("told", "1")
        else:
            error.add_note(f"Rank {first} failed first: it tells more.")
            self._wait_until_told()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                if self._store.check(["failed"]):
                    self._end()
                    return
            except RuntimeError:
                # The store has gone with the process that keeps it. Who needs that process finds out by itself.
                return
            self._write(is_last=False)

    def _end(self) -> None:
        """Another rank has failed. If this one is in a step and does not fail by itself, it must end."""
        self._write(is_last=True)
        self._wait_until_told()
        if self._ended.wait(STUCK_S) or not self._look().is_busy:
            return
        where = self._where()
        first, why = json.loads(self._store.get("failed"))
        sys.stderr.write(f"{where}: ended, as rank {first} failed ({why})\n")
        sys.stderr.flush()
        os._exit(EXIT_CODE)

    def _where(self) -> str:
        doing = self._look()
        return f"rank {self._rank} ({self._devices[self._rank]}), step {doing.step}, {doing.what}"

    def _wait_until_told(self) -> None:
        deadline = time.monotonic() + 2 * GATHER_S
        with suppress(RuntimeError):
            while time.monotonic() < deadline and not self._store.check(["told"]):
                time.sleep(BEAT_S / 5)
        time.sleep(TOLD_S)

    def _write(self, *, is_last: bool) -> None:
        doing = self._look()
        words = [doing.step, doing.what, doing.for_s, doing.is_busy, time.time(), is_last]
        with suppress(RuntimeError):
            self._store.set(str(self._rank), json.dumps(words))

    def _read(self, rank: int) -> Words | None:
        with suppress(RuntimeError):
            if self._store.check([str(rank)]):
                *doing, written_s, is_last = json.loads(self._store.get(str(rank)))
                return Words(Doing(*doing), written_s, is_last)
        return None

    def _table(self) -> str:
        ranks = range(len(self._devices))
        deadline = time.monotonic() + GATHER_S
        while True:
            words = [self._read(rank) for rank in ranks]
            if all(item is not None and item.is_last for item in words) or time.monotonic() > deadline:
                return last_words(self._devices, words, time.time())
            time.sleep(BEAT_S / 10)


def _own_connection() -> Store:
    """The store, without waiting for others of this process that use it."""
    found: Store = _get_default_store().clone()  # type: ignore[attr-defined]
    return found


def last_words(devices: Sequence[str], words: Sequence[Words | None], now_s: float) -> str:
    """A table of what each rank did last."""
    rows = [("rank", "device", "step", "was", "for", "")]
    for rank, (device, item) in enumerate(zip(devices, words, strict=True)):
        if item is None:
            rows.append((str(rank), device, "-", "not heard of", "", ""))
            continue
        doing, silent_s = item.doing, now_s - item.written_s
        step = "-" if doing.step < 0 else str(doing.step)
        is_gone = silent_s > SILENT_S and not item.is_last
        for_how_long = "" if is_gone else f"{doing.for_s:.1f} s"
        note = f"said {silent_s:.1f} s ago; ended, or stopped, since then" if is_gone else ""
        rows.append((str(rank), device, step, doing.what, for_how_long, note))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(["What each rank did last:", *(f"  {line}" for line in lines)])
