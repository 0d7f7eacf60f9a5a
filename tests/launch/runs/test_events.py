"""Events in a file that grows while it is read."""

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.emulation.clock import Lateness
from penstock.errors import InputError, RunError
from penstock.launch.runs.events import (
    Began,
    Done,
    Event,
    EventReader,
    EventWriter,
    Exited,
    Failed,
    LineReader,
    LinksChanged,
    Noted,
    Noticed,
    Sampled,
    Started,
    Stepped,
    failed_event,
)
from penstock.launch.runs.rank_state import RankState, Run
from penstock.launch.runs.rank_watch import update_run

EVENTS: list[Event] = [
    Started(1, 0, 77),
    Noted("two\nlines"),
    Began(0),
    Stepped(0, math.inf, 8, 0.5),
    Sampled(0, (0.0, 1.0), (1.0, 2.0)),
    Noticed(0, 0.5, (Lateness(1, 2.0, 3.0, 4.0),)),
    LinksChanged(2),
    Failed("InputError", "no", "x.py", "hint", is_input=True),
    Done(),
    Exited(-9, was_stopped=True),
]


@contextmanager
def writer_of(folder: Path, rank: int) -> Iterator[EventWriter]:
    """A rank's writer. Ranks keep theirs until they end."""
    writer = EventWriter(folder, rank)
    with writer._file:
        yield writer


def test_events_are_read_once_and_in_order(tmp_path: Path) -> None:
    reader, other = EventReader(tmp_path, 1), EventReader(tmp_path, 0)
    assert reader.new_events() == []  # there is no file yet
    with writer_of(tmp_path, 1) as writer:
        writer.write(EVENTS[0])
        assert reader.new_events() == EVENTS[:1]
        assert reader.new_events() == []
        for event in EVENTS[1:]:
            writer.write(event)
        assert reader.new_events() == EVENTS[1:]
        # Another writer appends; another rank has a file of its own.
        with writer_of(tmp_path, 1) as second:
            second.write(Done())
        assert reader.new_events() == [Done()]
    assert other.new_events() == []


def test_a_loss_that_is_not_a_number_survives(tmp_path: Path) -> None:
    with writer_of(tmp_path, 0) as writer:
        writer.write(Stepped(0, math.nan, 8, 0.5))
    (event,) = EventReader(tmp_path, 0).new_events()
    assert isinstance(event, Stepped)
    assert math.isnan(event.loss)


def test_a_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    reader = LineReader(path)
    assert reader.new_lines() == []
    for text, expected in ((b"on", []), (b"e\ntw", [b"one"]), (b"o\n\nthree\n", [b"two", b"", b"three"]), (b"", [])):
        with path.open("ab") as file:
            file.write(text)
        assert reader.new_lines() == expected


@pytest.mark.parametrize(
    ("code", "number"), [(0, None), (1, None), (128, None), (129, 1), (137, signal.SIGKILL), (-11, signal.SIGSEGV)]
)
def test_signals_of_exit_codes(code: int, number: int | None) -> None:
    assert Exited(code).signal == number


def test_errors_become_events() -> None:
    event = failed_event(InputError("what", where="where", hint="hint"))
    assert event == Failed("InputError", "what", "where", "hint", is_input=True)
    assert failed_event(RunError("what")) == Failed("RunError", "what")
    assert failed_event(ValueError("no")) == Failed("ValueError", "ValueError: no")
    event = failed_event(MemoryError("4 GB"))
    assert (event.kind, event.what, event.is_input) == ("MemoryError", "a rank ran out of memory", False)
    assert "micro-batch" in event.hint


def test_a_run_keeps_what_the_events_say() -> None:
    run = Run([RankState(0), RankState(1)])
    for event in EVENTS:
        update_run(run, run.ranks[1], event)
    update_run(run, run.ranks[0], Exited(0))
    update_run(run, run.ranks[0], Noted("two\nlines"))  # every rank may note it
    update_run(run, run.ranks[0], Began(4))
    update_run(run, run.ranks[0], Exited(3))
    state = run.ranks[1]
    assert (state.local_rank, state.pid, state.step, state.is_done) == (0, 77, 0, True)
    assert (state.failed, state.exited) == (EVENTS[7], EVENTS[9])
    assert (run.steps, run.samples, run.notes) == ([EVENTS[3]], [EVENTS[4]], ["two\nlines"])
    assert run.ranks[0].step == 4
    # The first that ended with another code than 0.
    assert run.first_exited == 1
