"""The files of one checkpoint, written and read by the planners, writer and reader of torch.distributed.checkpoint.

Its `save` and `load` are not used: their waits have no deadline, and their errors do not name the failing rank. Ranks
agree through a `Consensus` instead.
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

from penstock.dist import Consensus
from penstock.errors import FileError, InputError
from penstock.io import reason

_BROKEN = (OSError, RuntimeError, ValueError, KeyError, EOFError, AttributeError, pickle.UnpicklingError)
"""Exceptions that torch may raise for a damaged file."""


def write_state(state: Mapping[str, Any], path: Path, consensus: Consensus) -> None:
    """Write the state of all ranks to a directory, and flush it to disk. All ranks must call it.

    Args:
        state: The state that this rank writes.
        path: The directory.
        consensus: Agreement between the ranks.

    Raises:
        FileError: A rank cannot write its files.
        InputError: A rank cannot pickle its state.
    """
    planner, writer = DefaultSavePlanner(), FileSystemWriter(path)
    is_first = consensus.rank == 0

    def plan() -> Any:
        planner.set_up_planner(dict(state), writer.storage_meta(), is_first)
        writer.set_up_storage_writer(is_first)
        return writer.prepare_local_plan(planner.create_local_plan())

    def merge(plans: list[Any]) -> list[Any]:
        global_plan, shared.metadata = planner.create_global_plan(plans)
        return list(writer.prepare_global_plan(global_plan))

    def write() -> Any:
        try:
            return writer.write_data(planner.finish_plan(own_plan), planner).value()
        except OSError as error:
            raise FileError(f"rank {consensus.rank} cannot write: {reason(error)}", where=str(path.parent)) from None
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"rank {consensus.rank} cannot write: {error}",
                where=str(path.parent),
                hint="The value of extra=, and the state of optimizers, must be picklable.",
            ) from error

    def close(results: list[Any]) -> list[None]:
        writer.finish(shared.metadata, results)
        return [None] * consensus.world

    shared = _Shared()
    own_plan: Any = consensus.decide("planning a checkpoint", plan, merge)
    consensus.decide("writing a checkpoint", write, close)


class _Shared:
    """State of rank 0 between two decisions."""

    metadata: Any = None


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
