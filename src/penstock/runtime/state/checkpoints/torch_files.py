"""The files of one checkpoint, written and read by the planners, writer and reader of torch.distributed.checkpoint.

Its `save` and `load` are not used: their waits have no deadline, and their errors do not name the failing rank. Ranks
agree through a `Consensus` instead.
"""

import os
import pickle
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from penstock.dist import Consensus
from penstock.errors import FileError, InputError
from penstock.io import reason
from penstock.runtime.state.checkpoints.digests import DigestingStream, FileDigest

_BROKEN = (OSError, RuntimeError, ValueError, KeyError, EOFError, AttributeError, pickle.UnpicklingError)
"""Exceptions that torch may raise for a damaged file."""


class DigestingFileSystem(FileSystem):
    """The file system of a checkpoint's writer. It keeps the digest of each file that is written."""

    def __init__(self) -> None:
        self.digests: dict[str, FileDigest] = {}
        self.error: OSError | None = None
        """The first error of the operating system."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[Any, None, None]:
        """Open a file."""
        with super().create_stream(path, mode) as file:
            if "w" not in mode:
                yield file
                return
            stream = DigestingStream(file)
            try:
                yield stream
            finally:
                self.error = self.error or stream.error
        self.digests[Path(path).name] = stream.digest

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Rename a file."""
        super().rename(path, new_path)
        self.digests[Path(new_path).name] = self.digests.pop(Path(path).name)


Written: TypeAlias = "tuple[Any, dict[str, FileDigest]]"
"""What the writer of one rank has to tell rank 0, and the digests of its files."""


class StateWriter:
    """Writes the state of all ranks to a directory, and flushes it to disk, in three parts.

    All ranks make it and close it together. In between each writes alone, in any thread.

    Args:
        state: The state that this rank writes.
        path: The directory.
        consensus: Agreement between the ranks.
    """

    def __init__(self, state: Mapping[str, Any], path: Path, consensus: Consensus) -> None:
        self._planner, self._writer, self._files = DefaultSavePlanner(), FileSystemWriter(path), DigestingFileSystem()
        self._writer.fs = self._files
        self._path, self._consensus = path, consensus
        self._metadata: Any = None
        is_first = consensus.rank == 0

        def plan() -> Any:
            self._planner.set_up_planner(dict(state), self._writer.storage_meta(), is_first)
            self._writer.set_up_storage_writer(is_first)
            return self._writer.prepare_local_plan(self._planner.create_local_plan())

        def merge(plans: list[Any]) -> list[Any]:
            global_plan, self._metadata = self._planner.create_global_plan(plans)
            return list(self._writer.prepare_global_plan(global_plan))

        self._plan: Any = consensus.decide("planning a checkpoint", plan, merge)

    def write(self) -> Written:
        """Write the files of this rank.

        Raises:
            FileError: The operating system refuses.
            InputError: The state cannot be pickled.
        """
        try:
            results = self._writer.write_data(self._planner.finish_plan(self._plan), self._planner).value()
            return results, self._files.digests
        except (OSError, RuntimeError) as error:
            raise self._refused(error) from error
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"rank {self._consensus.rank} cannot write: {error}",
                where=str(self._path.parent),
                hint="The value of extra=, and the state of optimizers, must be picklable.",
            ) from error

    def close(self, written: Callable[[], Written]) -> dict[str, FileDigest]:
        """Write what describes all files.

        Args:
            written: Returns or raises what `write` has returned or raised on this rank.

        Returns:
            The digests of all files, by name, on rank 0.
        """

        def finish(every: list[Written]) -> list[dict[str, FileDigest]]:
            try:
                self._writer.finish(self._metadata, [results for results, _ in every])
            except OSError as error:
                raise self._refused(error) from error
            digests = {name: digest for _, own in every for name, digest in own.items()}
            return [digests | self._files.digests, *({} for _ in every[1:])]

        return self._consensus.decide("writing a checkpoint", written, finish)

    def _refused(self, error: Exception) -> Exception:
        """The reason of the operating system, if it has refused to write."""
        cause = error if isinstance(error, OSError) else self._files.error
        if cause is None:
            return error
        return FileError(
            f"rank {self._consensus.rank} cannot write: {reason(cause)}",
            where=str(self._path.parent),
            hint="Earlier checkpoints are intact.",
        )


class StoredCheckpoint:
    """A checkpoint that can be read in parts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = FileSystemReader(path)
        metadata = self._attempt(self._reader.read_metadata)
        self._metadata = metadata
        self.paths: dict[str, tuple[str | int, ...]] = dict(metadata.planner_data)
        """By key: the path of each value through dictionaries and lists."""

    def shapes(self, part: str) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of every tensor in a part that is a flat dictionary of tensors."""
        shapes = {}
        for key, path in self.paths.items():
            item = self._metadata.state_dict_metadata[key]
            if path[0] == part and isinstance(item, TensorStorageMetadata):
                shapes[str(path[1])] = (tuple(item.size), item.properties.dtype)
        return shapes

    def read(self, select: Callable[[tuple[str | int, ...]], bool]) -> dict[str, Any]:
        """Read all values whose path `select` accepts, in the dictionaries and lists in which they were written."""
        flat = self._attempt(lambda: self._values([key for key, path in self.paths.items() if select(path)]))
        tree: dict[str, Any] = {}
        for key, value in flat.items():
            _insert(tree, self.paths[key], value)
        return tree

    def _values(self, keys: Collection[str]) -> dict[str, Any]:
        metadata = self._metadata.state_dict_metadata
        values: dict[str, Any] = {
            key: torch.empty(metadata[key].size, dtype=metadata[key].properties.dtype)
            if isinstance(metadata[key], TensorStorageMetadata)
            else None
            for key in keys
        }
        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(values, self._metadata, True)
        self._reader.set_up_storage_reader(self._metadata, True)
        plan = self._reader.prepare_local_plan(planner.create_local_plan())
        [plan] = self._reader.prepare_global_plan(planner.create_global_plan([plan]))
        self._reader.read_data(planner.finish_plan(plan), planner).wait()
        return values

    def _attempt(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except _BROKEN as error:
            raise FileError(
                f"the checkpoint cannot be read: {reason(error) or type(error).__name__}",
                where=str(self._path),
                hint="If it is damaged, load an older one with step=.",
            ) from error


def _insert(tree: Any, path: tuple[str | int, ...], value: Any) -> None:
    for part, following in pairwise(path):
        tree = _enter(tree, part, {} if isinstance(following, str) else [])
    _enter(tree, path[-1], value, replace=True)


def _enter(tree: Any, part: str | int, value: Any, *, replace: bool = False) -> Any:
    """The item of a dictionary or list. Sets it to `value` first if it is missing, or if `replace` is set."""
    if isinstance(part, int):
        tree.extend([None] * (part + 1 - len(tree)))
        missing = tree[part] is None
    else:
        missing = part not in tree
    if missing or replace:
        tree[part] = value
    return tree[part]
