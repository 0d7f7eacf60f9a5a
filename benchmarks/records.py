"""Records of measurements, one JSON object per line, with which a stopped run resumes."""

import argparse
import hashlib
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")


class Task(NamedTuple):
    """One measurement of a benchmark."""

    part: str
    about: tuple[str | int | float, ...]
    digests: tuple[str, ...] = ()
    """Digests of the profile and the cluster. A task with other digests is measured again."""

    def key(self, label: str) -> str:
        """The key of the task under a label."""
        text = msgspec.json.encode([self.part, self.about, self.digests, label])
        return hashlib.sha256(text).hexdigest()[:16]


class Record(msgspec.Struct, frozen=True):
    """The result of a task. The last record of a key counts."""

    key: str
    label: str
    part: str
    took_s: float
    result: msgspec.Raw


def add_record_options(parser: argparse.ArgumentParser, path: Path, label: str) -> None:
    """Add the options of a benchmark that keeps records."""
    parser.add_argument("--tables", action="store_true", help="print the tables of the README from the records")
    parser.add_argument("--records", type=Path, default=path, help="the file of records")
    parser.add_argument(
        "--label", default=label, help="the label of the records; tasks without a record under it are measured"
    )
    parser.add_argument("--fresh", action="store_true", help="delete the records of all labels first")


def open_records(options: argparse.Namespace) -> "Records":
    """Open the records that the options name. A quick run keeps none."""
    if options.fresh and not options.quick:
        options.records.unlink(missing_ok=True)
    return Records(None if options.quick else options.records, options.label)


class Records:
    """The records of a benchmark, in a file or, without a path, in memory."""

    def __init__(self, path: Path | None, label: str) -> None:
        self._path = path
        self._label = label
        self._known: dict[str, Record] = {}
        if path is not None and path.is_file():
            for line in path.read_bytes().splitlines():
                try:
                    record = msgspec.json.decode(line, type=Record)
                except msgspec.DecodeError:
                    continue  # a run was stopped while it wrote this line
                self._known[record.key] = record

    def missing(self, tasks: list[Task]) -> list[Task]:
        """The tasks that have no record."""
        return [task for task in tasks if task.key(self._label) not in self._known]

    def of(self, tasks: list[Task], kind: type[T]) -> list[T]:
        """The recorded results of these tasks, in their order."""
        keys = [task.key(self._label) for task in tasks]
        return [msgspec.json.decode(self._known[key].result, type=kind) for key in keys if key in self._known]

    def took_s(self, tasks: list[Task]) -> float:
        """The time that measuring these tasks took."""
        keys = [task.key(self._label) for task in tasks]
        return sum(self._known[key].took_s for key in keys if key in self._known)

    def add(self, task: Task, result: object, took_s: float) -> None:
        """Record a result."""
        raw = msgspec.Raw(msgspec.json.encode(result))
        record = Record(task.key(self._label), self._label, task.part, took_s, raw)
        self._known[record.key] = record
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")
