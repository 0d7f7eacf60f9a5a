"""What was measured, kept line by line in a file, so that a run that was stopped goes on where it was."""

import argparse
import hashlib
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")


class Task(NamedTuple):
    """Something to measure."""

    part: str
    about: tuple[str | int | float, ...]
    digests: tuple[str, ...] = ()
    """Of the profile and the cluster: what was measured with others is measured again."""

    def key(self, label: str) -> str:
        """A short name for the task as this version of the project does it."""
        text = msgspec.json.encode([self.part, self.about, self.digests, label])
        return hashlib.sha256(text).hexdigest()[:16]


class Record(msgspec.Struct, frozen=True):
    """What was measured for a task; the newest of a key counts."""

    key: str
    label: str
    part: str
    took_s: float
    found: msgspec.Raw


def add_record_options(parser: argparse.ArgumentParser, path: Path, label: str) -> None:
    """The options of a benchmark that keeps records."""
    parser.add_argument("--tables", action="store_true", help="print the README's tables; measure nothing")
    parser.add_argument("--records", type=Path, default=path, help="where measurements are kept")
    parser.add_argument("--label", default=label, help="what was measured under another label is measured again")
    parser.add_argument("--fresh", action="store_true", help="forget what is on record, under every label")


def open_records(options: argparse.Namespace) -> "Records":
    """The records that were asked for; those of a quick run are kept nowhere."""
    if options.fresh and not options.quick:
        options.records.unlink(missing_ok=True)
    return Records(None if options.quick else options.records, options.label)


class Records:
    """The file of records; without a file they are only remembered."""

    def __init__(self, path: Path | None, label: str) -> None:
        self._path = path
        self._label = label
        self._known: dict[str, Record] = {}
        if path is not None and path.is_file():
            for line in path.read_bytes().splitlines():
                try:
                    record = msgspec.json.decode(line, type=Record)
                except msgspec.DecodeError:
                    continue  # the line that was being written when a run was stopped
                self._known[record.key] = record

    def missing(self, tasks: list[Task]) -> list[Task]:
        """Those that are still to be measured."""
        return [task for task in tasks if task.key(self._label) not in self._known]

    def of(self, tasks: list[Task], kind: type[T]) -> list[T]:
        """What is known of these tasks, in their order."""
        keys = [task.key(self._label) for task in tasks]
        return [msgspec.json.decode(self._known[key].found, type=kind) for key in keys if key in self._known]

    def took_s(self, tasks: list[Task]) -> float:
        """Seconds that measuring these took."""
        keys = [task.key(self._label) for task in tasks]
        return sum(self._known[key].took_s for key in keys if key in self._known)

    def add(self, task: Task, found: object, took_s: float) -> None:
        """Keep what was measured."""
        raw = msgspec.Raw(msgspec.json.encode(found))
        record = Record(task.key(self._label), self._label, task.part, took_s, raw)
        self._known[record.key] = record
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")
