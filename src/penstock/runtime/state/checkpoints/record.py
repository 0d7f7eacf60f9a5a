"""The metadata file of a checkpoint. It is written last, and holds the digests of all other files and of itself."""

from pathlib import Path

import msgspec

from penstock.errors import FileError
from penstock.io import decode_json, digest, encode_json, read_bytes, write_whole
from penstock.runtime.state.checkpoints.digests import FileDigest

FORMAT = "penstock.checkpoint/2"
RECORD = "penstock.json"


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The metadata of a checkpoint."""

    format: str = FORMAT
    step: int
    """Number of the next step, counted from 0: the number of completed steps."""
    number: int
    """Numbers the checkpoints of a directory in the order of writing."""
    seed: int
    """Seed of the pipeline's random numbers."""
    optimizers: tuple[str, ...] = ()
    """Classes of the optimizers."""
    world: int
    """Number of ranks that wrote the checkpoint."""
    files: dict[str, FileDigest]
    """The digest of each file, by name."""
    digest: str = ""
    """The digest of all other fields."""


def write_record(path: Path, record: Record) -> None:
    """Write the metadata of a checkpoint, with its own digest."""
    sealed = msgspec.structs.replace(record, digest=digest(record, without=("digest",)))
    write_whole(path / RECORD, encode_json(sealed))


def read_record(path: Path) -> Record:
    """Read the metadata of a complete checkpoint.

    Raises:
        FileError: There is none, or it is damaged.
        InputError: It has another format.
    """
    where = path / RECORD
    if not where.is_file():
        raise FileError(
            f"the directory has the name of a checkpoint, but no {RECORD}",
            where=str(path),
            hint="Move it out of the checkpoint directory.",
        )
    record = decode_json(read_bytes(where), Record, where=str(where), expected_format=FORMAT)
    if record.digest != digest(record, without=("digest",)):
        raise FileError("the file does not have the contents that were written", where=str(where))
    return record
