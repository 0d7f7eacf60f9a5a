"""The table of iterations: one row for each configuration of a GPT model on one host of A100s."""

import csv
from pathlib import Path
from typing import NamedTuple

from penstock.errors import FileError, InputError
from penstock.io import read_text
from penstock.profile import MeasuredAllReduce, read_all_reduces

ITERATIONS = "megatron_a100_one_node.csv"
ALL_REDUCES = "allreduce_a100_one_node.csv"


class Model(NamedTuple):
    """The sizes of a GPT model."""

    hidden: int
    heads: int
    layers: int
    sequence: int


class Row(NamedTuple):
    """One configuration and the seconds of its iteration."""

    model: Model
    global_batch_size: int
    micro_batch_size: int
    tensor: int
    data: int
    pipeline: int
    iteration_s: float

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of an iteration."""
        return self.global_batch_size // (self.micro_batch_size * self.data)


def read_rows(folder: Path) -> list[Row]:
    """Read the iterations.

    Raises:
        FileError: The file does not exist.
        InputError: Its columns or numbers are not those of the table.
    """
    path = folder / "measured" / ITERATIONS
    reader = csv.DictReader(_text(path).splitlines())
    rows = []
    for entry in reader:
        try:
            numbers = {name: float(value) for name, value in entry.items()}
            row = _row(numbers)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"unexpected contents: {error}", where=f"{path}:{reader.line_num}") from None
        if row.num_microbatches * row.micro_batch_size * row.data != row.global_batch_size:
            raise InputError(
                "the global batch is not a whole number of micro-batches", where=f"{path}:{reader.line_num}"
            )
        rows.append(row)
    return rows


def read_all_reduce_tables(folder: Path) -> tuple[MeasuredAllReduce, ...]:
    """Read the measured all-reduces."""
    path = folder / "measured" / ALL_REDUCES
    return read_all_reduces(_text(path), where=str(path))


def _text(path: Path) -> str:
    if not path.is_file():
        raise FileError("the table does not exist", where=str(path), hint="Pass the folder of published instances.")
    return read_text(str(path))


def _row(numbers: dict[str, float]) -> Row:
    names = ("hidden_size", "num_attention_heads", "num_layers", "sequence_length")
    hidden, heads, layers, sequence = (int(numbers[name]) for name in names)
    return Row(
        model=Model(hidden, heads, layers, sequence),
        global_batch_size=int(numbers["global_batch_size"]),
        micro_batch_size=int(numbers["micro_batch_size"]),
        tensor=int(numbers["tensor_parallel"]),
        data=int(numbers["data_parallel"]),
        pipeline=int(numbers["pipeline_parallel"]),
        iteration_s=numbers["iteration_ms"] / 1e3,
    )
