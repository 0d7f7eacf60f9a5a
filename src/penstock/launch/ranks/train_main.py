"""One rank of `penstock train`: what torchrun starts, as `-m penstock.launch.ranks.train_main`.

With --report its words go into files, from which the command that started it makes one picture. Without, rank 0 prints
plain lines: so the command that `penstock train --dry-run` shows works by itself.
"""

import os
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from penstock.dist import end_late
from penstock.errors import InputError, PenstockError
from penstock.launch.events import Done, Event, EventWriter, Failed, Noted, Started, Stepped
from penstock.launch.process import STARTED_BY
from penstock.launch.train_options import parse_options
from penstock.units import show_seconds

LOOK_EVERY_S = 1.0


class _Teller:
    """Where a rank's words go."""

    def __init__(self, report: str | None, rank: int) -> None:
        self._writer = EventWriter(Path(report), rank) if report else None
        self._is_first = rank == 0

    def __call__(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.tell(event)
        elif isinstance(event, Failed):
            sys.stderr.write("\n".join(filter(None, (f"error: {event.text}", event.table))) + "\n")
        elif self._is_first and isinstance(event, Stepped):
            rate = event.num_rows / event.seconds
            seconds = show_seconds(event.seconds)
            _print(f"step {event.step}: loss {event.loss:.6g}, {seconds}, {rate:,.1f} rows/s")
        elif self._is_first and isinstance(event, Noted):
            _print(event.text)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: Sequence[str]) -> None:
    """Train, as one of several processes that the launcher or torchrun has started."""
    parser = ArgumentParser(prog="penstock.launch.ranks.train_main", description=main.__doc__)
    parser.add_argument("--alone", action="store_true", help="train the whole model in this process")
    parser.add_argument("--report", help="directory for the events of this rank")
    parser.add_argument("--keep-state", action="store_true", help="write parameters and buffers there at the end")
    parser.add_argument("--follow", help="take each step's gradients from this file, and record how they differ")
    asked, more = parse_options(words, parser)
    alone, report, keep_state, follow = more.alone, more.report, more.keep_state, more.follow
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    tell = _Teller(report, rank)
    tell(Started(rank, local_rank, os.getpid()))
    if report and rank:
        # Every rank runs the script; what it prints is wanted once.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if report:
        _leave_with(int(os.environ.get(STARTED_BY, "0")))
    end_late(lambda: "")
    try:
        from penstock.launch.ranks.train import train_rank

        state = train_rank(asked, tell, alone=alone, keep_gradients=keep_state and alone, follow=follow)
        if keep_state and report:
            import torch

            torch.save(state, state_path(Path(report), rank))
    except BaseException as error:
        _fail(error, tell)
    tell(Done())
    _end(0)


def _leave_with(process: int) -> None:
    """When the command that reads what this rank tells has ended, however that was, the rank ends too."""

    def watch() -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                os._exit(1)

    if process:
        threading.Thread(target=watch, name="penstock-leave", daemon=True).start()


def state_path(folder: Path, rank: int) -> Path:
    """Where a rank puts its parameters and buffers."""
    return folder / f"rank-{rank}.state"


def _fail(error: BaseException, tell: _Teller) -> NoReturn:
    if isinstance(error, PenstockError):
        is_input = isinstance(error, InputError)
        tell(Failed(type(error).__name__, str(error), is_input, "\n".join(getattr(error, "__notes__", ()))))
        _end(2 if is_input else 1)
    if isinstance(error, KeyboardInterrupt):
        _end(130)
    if isinstance(error, MemoryError):
        tell(Failed("MemoryError", "a rank has not enough memory\n  Plan for smaller micro-batches.", False))
        _end(1)
    import traceback

    # A mistake of ours: nothing is hidden of it.
    traceback.print_exc()
    tell(Failed(type(error).__name__, f"{type(error).__name__}: {error}", False))
    _end(1)


def _end(code: int) -> NoReturn:
    """At once: what torch would still do at exit could wait for ranks that have ended."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
