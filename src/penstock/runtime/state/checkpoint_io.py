"""The files of one checkpoint, by torch.distributed.checkpoint: its planners, writer and reader.

Its `save` and `load` are not called, as their waits have no deadline of ours and their failures no peer's name: what
ranks must agree on goes through an `Agreement`.
"""

import pickle
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from penstock.dist import Agreement
from penstock.errors import FileError, InputError
from penstock.io import reason

_BROKEN = (OSError, RuntimeError, ValueError, KeyError, EOFError, AttributeError, pickle.UnpicklingError)
"""What torch may raise at a file that is not as it was written."""


def write_state(state: Mapping[str, Any], path: Path, meeting: Agreement) -> None:
    """Write the state of all ranks into a folder; each rank gives what it has to write. All is flushed to the disk."""
    planner, writer = DefaultSavePlanner(), FileSystemWriter(path)
    is_first = meeting.rank == 0

    def plan() -> Any:
        planner.set_up_planner(dict(state), writer.storage_meta(), is_first)
        writer.set_up_storage_writer(is_first)
        return writer.prepare_local_plan(planner.create_local_plan())

    def join(plans: list[Any]) -> list[Any]:
        whole, found.metadata = planner.create_global_plan(plans)
        return list(writer.prepare_global_plan(whole))

    def write() -> Any:
        try:
            return writer.write_data(planner.finish_plan(mine), planner).value()
        except OSError as error:
            raise FileError(f"rank {meeting.rank} cannot write: {reason(error)}", where=str(path.parent)) from None
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"rank {meeting.rank} cannot write: {error}",
                where=str(path.parent),
                hint="What is given as extra, and what optimizers keep, must be something that pickle can write.",
            ) from error

    def close(results: list[Any]) -> list[None]:
        writer.finish(found.metadata, results)
        return [None] * meeting.world

    found = _Joined()
    mine: Any = meeting.hold("plans what to write of a checkpoint", plan, join)
    meeting.hold("writes its part of a checkpoint", write, close)


class _Joined:
    """What rank 0 keeps between two meetings."""

    metadata: Any = None


class Stored:
    """A checkpoint that can be read, in parts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = FileSystemReader(path)
        metadata = self._tried(self._reader.read_metadata)
        self._metadata = metadata
        self.paths: dict[str, tuple[str | int, ...]] = dict(metadata.planner_data)
        """By its key where each value stands: a way through dictionaries and lists."""

    def forms(self, part: str) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of every tensor of a part that is one dictionary of tensors."""
        found = {}
        for key, path in self.paths.items():
            item = self._metadata.state_dict_metadata[key]
            if path[0] == part and isinstance(item, TensorStorageMetadata):
                found[str(path[1])] = (tuple(item.size), item.properties.dtype)
        return found

    def read(self, wanted: Callable[[tuple[str | int, ...]], bool]) -> dict[str, Any]:
        """All values that stand at wanted places, in dictionaries and lists as they were given to be written."""
        flat = self._tried(lambda: self._values([key for key, path in self.paths.items() if wanted(path)]))
        tree: dict[str, Any] = {}
        for key, value in flat.items():
            _place(tree, self.paths[key], value)
        return tree

    def _values(self, keys: Collection[str]) -> dict[str, Any]:
        forms = self._metadata.state_dict_metadata
        values: dict[str, Any] = {
            key: torch.empty(forms[key].size, dtype=forms[key].properties.dtype)
            if isinstance(forms[key], TensorStorageMetadata)
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

    def _tried(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except _BROKEN as error:
            raise FileError(
                f"the checkpoint cannot be read: {reason(error) or type(error).__name__}",
                where=str(self._path),
                hint="If it is damaged, choose an older one with step=.",
            ) from error


def _place(tree: Any, path: tuple[str | int, ...], value: Any) -> None:
    for part, following in pairwise(path):
        tree = _enter(tree, part, {} if isinstance(following, str) else [])
    _enter(tree, path[-1], value, replace=True)


def _enter(tree: Any, part: str | int, value: Any, *, replace: bool = False) -> Any:
    """What is at one place of a dictionary or list; the value, if there was nothing."""
    if isinstance(part, int):
        tree.extend([None] * (part + 1 - len(tree)))
        missing = tree[part] is None
    else:
        missing = part not in tree
    if missing or replace:
        tree[part] = value
    return tree[part]
