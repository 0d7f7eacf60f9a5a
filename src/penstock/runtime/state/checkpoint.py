"""Saving all that training needs to go on, and loading it: under any plan, on any number of ranks.

What is written is under the model's own names, so it does not matter who held what:

    model     parameters and buffers, as in model.state_dict()
    optim     as torch.distributed.checkpoint.state_dict has it: state by name, groups
    random    by rank: the states of torch's generators
    extra     what the user gave, in a tuple of one

What writes and reads the files is imported where it is needed: torch's own part of it takes longer than all else here.
"""

import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penstock.dist import Agreement
from penstock.errors import FileError, InputError, MismatchError
from penstock.io import reason
from penstock.runtime.rng import generator_states, set_generator_states
from penstock.runtime.state import checkpoint_dir
from penstock.runtime.state.checkpoint_dir import Lock, Record
from penstock.runtime.state.optimizer_state import Described, check_fits, describe, join, param_groups, put_back
from penstock.runtime.state.state_index import Entry

DEFAULT_KEEP = 2
SEEN_WITHIN_S = 3.0
"""Folders that hosts share may show others a little later what one has made."""


@dataclass(frozen=True)
class Loaded:
    """What was loaded."""

    step: int
    """The number of the next step, counted from 0."""
    extra: Any
    """What `extra=` was when it was saved; None if nothing."""
    path: Path
    seed: int


@dataclass(frozen=True, eq=False)
class Holdings:
    """What a rank has of the state of training."""

    model: nn.Module
    entries: tuple[Entry, ...]
    """Of the whole model."""
    writers: Mapping[str, int]
    trained: Mapping[str, nn.Parameter]
    """The parameters that are trained here."""
    device: torch.device

    def described(self, optimizers: Sequence[torch.optim.Optimizer]) -> list[Described]:
        """The optimizers of this rank."""
        return [describe(item, self.names()) for item in optimizers]

    def names(self) -> dict[Tensor, str]:
        """The names of the parameters that are trained here."""
        return {item: name for name, item in self.trained.items()}

    def order(self) -> dict[str, int]:
        """The places of names in the model."""
        return {entry.name: place for place, entry in enumerate(self.entries)}


class Checkpoints:
    """A pipeline's checkpoints, and the optimizers whose state is in them. All ranks must call alike."""

    def __init__(self, holdings: Holdings, meeting: Agreement) -> None:
        self._holdings = holdings
        self._meeting = meeting
        self._made: list[weakref.ref[torch.optim.Optimizer]] = []

    def add(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on its state is saved, as long as somebody uses it."""
        self._made.append(weakref.ref(optimizer))

    def save(self, folder: Path, *, step: int, seed: int, extra: Any, keep: int | None) -> Path:
        """Write a checkpoint. The folder has it whole or not at all."""
        from penstock.runtime.state.checkpoint_io import write_state

        if keep is not None and keep < 1:
            raise InputError(f"keep must be at least 1, not {keep}", hint="Give None to keep all checkpoints.")
        holdings, meeting, optimizers = self._holdings, self._meeting, self._optimizers()
        with ExitStack() as stack:

            def begin(found: list[list[Described]]) -> list[tuple[str, tuple[Described, ...]]]:
                joined = join(found, holdings.order())
                return [(_begin(folder, step, stack), joined)] * meeting.world

            name, joined = meeting.hold("begins a checkpoint", lambda: holdings.described(optimizers), begin)
            unfinished = folder / name
            if meeting.rank == 0:
                stack.callback(checkpoint_dir.remove, [unfinished])
            meeting.agree("looks for the folder of a checkpoint", lambda: _require_seen(unfinished, meeting.rank))
            write_state(_state(holdings, meeting.rank, optimizers, joined, extra), unfinished, meeting)

            def finish(_: list[None]) -> list[Path]:
                number = checkpoint_dir.next_number(folder)
                kinds = tuple(item.kind for item in joined)
                record = Record(step=step, number=number, seed=seed, optimizers=kinds, world=meeting.world)
                return [checkpoint_dir.finish(unfinished, record, keep)] * meeting.world

            return meeting.hold("finishes a checkpoint", lambda: None, finish)

    def load(self, folder: Path, *, step: int | None, with_optimizers: bool) -> Loaded:
        """Load a checkpoint: all ranks do, or none."""
        from penstock.runtime.state.checkpoint_io import Stored

        holdings, meeting = self._holdings, self._meeting
        optimizers = self._optimizers() if with_optimizers else []

        def choose(found: list[list[Described]]) -> list[tuple[str, Record]]:
            chosen = checkpoint_dir.choose(folder, step)
            with checkpoint_dir.locked(folder) as lock:
                if lock is Lock.HELD:
                    checkpoint_dir.remove(checkpoint_dir.unfinished_in(folder))
            if with_optimizers:
                groups = Stored(chosen.path).read(lambda path: path[:2] == ("optim", "param_groups"))
                joined = join(found, holdings.order())
                check_fits(chosen.record.optimizers, groups.get("optim", {}).get("param_groups", []), joined)
            return [(chosen.path.name, chosen.record)] * meeting.world

        name, record = meeting.hold("chooses a checkpoint", lambda: holdings.described(optimizers), choose)
        path = folder / name
        read = meeting.agree(
            "reads a checkpoint", lambda: _read(holdings, path, meeting.rank, with_state=with_optimizers)
        )
        _put_in_place(holdings, optimizers, read)
        return Loaded(record.step, read.get("extra", (None,))[0], path, record.seed)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [made for known in self._made if (made := known()) is not None]


def _begin(folder: Path, step: int, stack: ExitStack) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"no checkpoint can be written here: {reason(error)}", where=str(folder)) from None
    lock = stack.enter_context(checkpoint_dir.locked(folder))
    if lock is Lock.TAKEN:
        raise InputError(
            "another process is writing a checkpoint into this folder",
            where=str(folder),
            hint="Give every run a folder of its own.",
        )
    if lock is Lock.HELD:
        checkpoint_dir.remove(checkpoint_dir.unfinished_in(folder))
    return checkpoint_dir.begin(folder, step).name


def _require_seen(path: Path, rank: int) -> None:
    deadline = time.monotonic() + SEEN_WITHIN_S
    while not path.is_dir():
        if time.monotonic() > deadline:
            raise InputError(
                f"rank {rank} does not see what rank 0 has put there",
                where=str(path.parent),
                hint="Give every rank the same folder, on storage that all hosts share.",
            )
        time.sleep(0.05)


def _state(
    holdings: Holdings,
    rank: int,
    optimizers: Sequence[torch.optim.Optimizer],
    joined: Sequence[Described],
    extra: Any,
) -> dict[str, Any]:
    """What this rank writes."""
    mine = [entry for entry in holdings.entries if holdings.writers[entry.name] == rank]
    state: dict[str, Any] = {
        "model": {key: entry.tensor(holdings.model).detach() for entry in mine for key in entry.keys},
        "random": {str(rank): generator_states(holdings.device)},
    }
    if optimizers:
        chosen = {entry.name for entry in mine}
        written = {item: name for item, name in holdings.names().items() if name in chosen}
        state["optim"] = {
            "state": {
                written[item]: dict(values)
                for optimizer in optimizers
                for item, values in optimizer.state.items()
                if item in written
            }
        }
    if rank == 0 and optimizers:
        state["optim"]["param_groups"] = param_groups(joined)
    if rank == 0 and extra is not None:
        # In a tuple, which is written as it is: dictionaries would be taken apart, and their keys made text.
        state["extra"] = (extra,)
    return state


def _read(holdings: Holdings, path: Path, rank: int, *, with_state: bool) -> dict[str, Any]:
    """What this rank needs of a checkpoint, read but not put in place."""
    from penstock.runtime.state.checkpoint_io import Stored

    _require_seen(path, rank)
    stored = Stored(path)
    _check_model(stored.forms("model"), holdings.entries, path)
    held = {entry.name for entry in holdings.entries if not entry.tensor(holdings.model).is_meta}
    has_mine = any(place[:2] == ("random", str(rank)) for place in stored.paths.values())
    # A rank that was not there then goes on as rank 0 did.
    random = str(rank) if has_mine else "0"

    def wanted(place: tuple[str | int, ...]) -> bool:
        match place:
            case ("model", name):
                return name in held
            case ("optim", "state", name, *_):
                return with_state and name in holdings.trained
            case ("optim", "param_groups", *_):
                return with_state
            case ("random", name, *_):
                return name == random
        return place[0] == "extra"

    read = stored.read(wanted)
    read["random"] = read.get("random", {}).get(random, [])
    return read


def _check_model(
    saved: Mapping[str, tuple[tuple[int, ...], torch.dtype]], entries: Sequence[Entry], path: Path
) -> None:
    """Refuse a checkpoint of another model."""
    there = {key: entry for entry in entries for key in entry.keys}
    for key, entry in there.items():
        if key not in saved:
            raise _other_model(f"the model has {key!r}, which is not in it", path)
        shape, dtype = saved[key]
        if (shape, dtype) != (entry.shape, entry.dtype):
            text = f"{key!r} has the shape {shape} and the type {dtype} in it, but {entry.shape} and {entry.dtype} "
            raise _other_model(text + "in the model", path)
    for key in saved:
        if key not in there:
            raise _other_model(f"it has {key!r}, which the model has not", path)


def _other_model(what: str, path: Path) -> MismatchError:
    return MismatchError(
        f"the checkpoint is one of another model: {what}", where=str(path), hint="Make the model that was saved."
    )


@torch.no_grad()
def _put_in_place(holdings: Holdings, optimizers: Sequence[torch.optim.Optimizer], read: Mapping[str, Any]) -> None:
    for entry in holdings.entries:
        tensor = entry.tensor(holdings.model)
        if not tensor.is_meta:
            tensor.copy_(read["model"][entry.name])
    for parameter in holdings.trained.values():
        parameter.grad = None
    first = 0
    for optimizer in optimizers:
        last = first + len(optimizer.param_groups)
        groups = read["optim"]["param_groups"][first:last]
        put_back(optimizer, holdings.names(), groups, read["optim"].get("state", {}))
        first = last
    set_generator_states(holdings.device, read["random"])
