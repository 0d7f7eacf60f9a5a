"""One rank of `penstock train`, started as `-m penstock.launch.ranks.train_main`.

With --events the rank writes its events to files that `penstock train` reads. Without, rank 0 prints plain lines, so
the command that `penstock train --dry-run` prints works standalone.
"""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from penstock.dist import exit_now, ignore_stop_signals, open_status_board, prepare_rank, status_board
from penstock.errors import PenstockError
from penstock.launch.ranks.failures import describe_failure
from penstock.launch.ranks.memory_copies import Copying
from penstock.launch.runs import (
    Done,
    Event,
    EventWriter,
    Failed,
    Noted,
    Started,
    Stepped,
)
from penstock.launch.train_options import parse_options
from penstock.units import show_seconds


class _Reporter:
    """Writes a rank's events to its file, or prints them."""

    def __init__(self, folder: str | None, rank: int) -> None:
        self._writer = EventWriter(Path(folder), rank) if folder else None
        self._is_first = rank == 0

    def __call__(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.write(event)
        elif isinstance(event, Failed):
            error = PenstockError(event.what, where=event.where, hint=event.hint)
            sys.stderr.write("\n".join(filter(None, (f"error: {error}", event.status_table))) + "\n")
        elif self._is_first and isinstance(event, Stepped):
            rate = event.num_rows / event.seconds
            seconds = show_seconds(event.seconds)
            _print(f"step {event.step}: loss {event.loss:.6g}, {seconds}, {rate:,.1f} rows/s")
        elif self._is_first and isinstance(event, Noted):
            _print(event.text)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> None:
    """Train, as one of several processes that the launcher or torchrun has started."""
    parser = ArgumentParser(prog="penstock.launch.ranks.train_main", description=main.__doc__)
    parser.add_argument("--single-process", action="store_true", help="train the whole model in this process")
    parser.add_argument("--events", help="directory for the events of this rank")
    parser.add_argument("--slices", help="file with the program slices of the ranks")
    parser.add_argument("--keep-state", action="store_true", help="write parameters and buffers there at the end")
    parser.add_argument("--reference-gradients", help="use the gradients of this file in every step, and compare")
    parser.add_argument("--copies", help="directory in memory for copies of the state")
    parser.add_argument("--generation", type=int, default=0, help="number of this set of ranks of an elastic run")
    parser.add_argument("--copy-every", type=int, default=0, help="steps between two copies; 0: none")
    parser.add_argument("--until", type=int, help="pause when this many steps are done")
    options, more = parse_options(arguments, parser)
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    if more.events:
        open_status_board(Path(more.events), rank)
    report = _Reporter(more.events, rank)
    report(Started(rank, local_rank, os.getpid()))
    if more.events and rank:
        # Every rank runs the script, and its output should appear once.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    prepare_rank()
    if more.events and not more.single_process:
        ignore_stop_signals()
    try:
        from penstock.launch.ranks.train import train_rank

        state = train_rank(
            options,
            report,
            single_process=more.single_process,
            keep_gradients=more.keep_state and more.single_process,
            reference=more.reference_gradients,
            slices=more.slices,
            run_folder=Path(more.events) if more.events else None,
            copying=Copying(Path(more.copies), more.generation, more.copy_every, more.until) if more.copies else None,
        )
        if more.keep_state and more.events:
            import torch

            torch.save(state, state_path(Path(more.events), rank))
    except BaseException as error:
        _fail(error, report)
    report(Done())
    exit_now(0)


def state_path(folder: Path, rank: int) -> Path:
    """The file of a rank's parameters and buffers."""
    return folder / f"rank-{rank}.state"


def _fail(error: BaseException, report: _Reporter) -> NoReturn:
    if isinstance(error, KeyboardInterrupt):
        exit_now(130)
    status_board().note_failure()
    event = describe_failure(error)
    report(event)
    exit_now(2 if event.is_input else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
