"""The state that one rank holds: which part of a checkpoint it writes, reads and restores.

`torch_files` is imported where it is needed, because torch.distributed.checkpoint takes long to import.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from penstock.errors import MismatchError
from penstock.runtime.precision import LossScaler
from penstock.runtime.rng import get_rng_states, set_rng_states
from penstock.runtime.sharding import Slice
from penstock.runtime.state.optimizer_state import OptimizerLayout, describe_optimizer, param_groups, restore_optimizer
from penstock.runtime.state.state_index import Entry

Collect = Callable[[Mapping[str, Mapping[str, Any]]], dict[str, dict[str, Any]]]
"""By parameter and key: values of its pieces to values of the whole."""


def _collect_nothing(_values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {}


@dataclass(frozen=True, eq=False)
class RankState:
    """The part of the training state that a rank holds."""

    model: nn.Module
    entries: tuple[Entry, ...]
    """All entries of the model."""
    holders: Mapping[str, Sequence[int]]
    """By name: the ranks that have the latest values of an entry."""
    writers: Mapping[str, int]
    """By name: the rank that writes an entry."""
    trained: Mapping[str, nn.Parameter]
    """The parameters that this rank trains, as optimizers have them."""
    device: torch.device
    masters: Mapping[str, nn.Parameter] = field(default_factory=dict)
    """Those among them that layers hold in a smaller type."""
    scaler: LossScaler | None = None
    slices: Mapping[str, Slice] = field(default_factory=dict)
    """The parameters that a sharded optimizer divides, and that this rank has a piece of."""
    collect: Collect = _collect_nothing
    """Puts values of such parameters together. Collective between the ranks that have pieces."""

    def whole_masters(self) -> dict[str, Tensor]:
        """The master weights of divided parameters whose first piece this rank has. Collective."""
        own = {name: {"value": self.masters[name]} if name in self.masters else {} for name in self.slices}
        return {name: values["value"] for name, values in self.collect(own).items() if values}

    def optimizer_values(self, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, dict[str, Any]]:
        """The state of the parameters that this rank steps, by name. Collective.

        That of a divided parameter is whole on the rank that has its first piece.
        """
        names = self.names()
        values = {
            names[item]: dict(state)
            for optimizer in optimizers
            for item, state in optimizer.state.items()
            if item in names
        }
        return values | self.collect({name: values.get(name, {}) for name in self.slices})

    def tensor(self, entry: Entry, whole: Mapping[str, Tensor] = MappingProxyType({})) -> Tensor:
        """The tensor with the value of an entry. `whole` has the master weights of divided parameters."""
        if entry.name in whole:
            return whole[entry.name]
        return self.masters[entry.name] if entry.name in self.masters else entry.tensor(self.model)

    def optimizer_layouts(self, optimizers: Sequence[torch.optim.Optimizer]) -> list[OptimizerLayout]:
        """Describe the optimizers of this rank."""
        return [describe_optimizer(item, self.names()) for item in optimizers]

    def names(self) -> dict[Tensor, str]:
        """The names of the parameters that this rank trains."""
        return {item: name for name, item in self.trained.items()}

    def order(self) -> dict[str, int]:
        """The position of each name in the model."""
        return {entry.name: index for index, entry in enumerate(self.entries)}


def state_to_write(
    rank_state: RankState,
    rank: int,
    optimizers: Sequence[torch.optim.Optimizer],
    merged: Sequence[OptimizerLayout],
    extra: Any,
) -> dict[str, Any]:
    """The state that this rank writes. Collective if a sharded optimizer divides parameters."""
    whole = rank_state.whole_masters()
    own = [entry for entry in rank_state.entries if rank_state.writers[entry.name] == rank]
    state: dict[str, Any] = {
        "model": {key: rank_state.tensor(entry, whole).detach() for entry in own for key in entry.keys},
        "random": {str(rank): get_rng_states(rank_state.device)},
    }
    if optimizers:
        own_names = {entry.name for entry in own}
        values = rank_state.optimizer_values(optimizers)
        state["optim"] = {"state": {name: values[name] for name in values if name in own_names and values[name]}}
    if rank == 0 and optimizers:
        state["optim"]["param_groups"] = param_groups(merged)
    if rank == 0 and rank_state.scaler is not None:
        state["loss_scale"] = (rank_state.scaler.state,)
    if rank == 0 and extra is not None:
        # In a tuple, which is written as one object. A dictionary would be flattened, and its keys become strings.
        state["extra"] = (extra,)
    return state


def read_state(rank_state: RankState, path: Path, rank: int, *, with_state: bool) -> dict[str, Any]:
    """Read the part of a checkpoint that this rank needs."""
    from penstock.runtime.state.checkpoints.torch_files import StoredCheckpoint

    stored = StoredCheckpoint(path)
    _check_model(stored.shapes("model"), rank_state.entries, path)
    held = {entry.name for entry in rank_state.entries if not entry.tensor(rank_state.model).is_meta}
    has_own = any(key[:2] == ("random", str(rank)) for key in stored.paths.values())
    # A rank that did not exist when the checkpoint was written continues with the generators of rank 0.
    random = str(rank) if has_own else "0"

    def select(key: tuple[str | int, ...]) -> bool:
        match key:
            case ("model", name):
                return name in held
            case ("optim", "state", name, *_):
                return with_state and name in rank_state.trained
            case ("optim", "param_groups", *_):
                return with_state
            case ("random", name, *_):
                return name == random
        return key[0] in ("extra", "loss_scale")

    read = stored.read(select)
    read["random"] = read.get("random", {}).get(random, [])
    return read


def _check_model(
    saved: Mapping[str, tuple[tuple[int, ...], torch.dtype]], entries: Sequence[Entry], path: Path
) -> None:
    """Reject a checkpoint of another model."""
    expected = {key: entry for entry in entries for key in entry.keys}
    for key, entry in expected.items():
        if key not in saved:
            raise _other_model(f"it lacks {key!r} of the model", path)
        shape, dtype = saved[key]
        if (shape, dtype) != (entry.shape, entry.dtype):
            text = f"{key!r} has shape {shape} and type {dtype}, but {entry.shape} and {entry.dtype} in the model"
            raise _other_model(text, path)
    for key in saved:
        if key not in expected:
            raise _other_model(f"it has {key!r}, which the model lacks", path)


def _other_model(what: str, path: Path) -> MismatchError:
    return MismatchError(
        f"the checkpoint is of another model: {what}", where=str(path), hint="Create the model that was saved."
    )


@torch.no_grad()
def restore_state(rank_state: RankState, optimizers: Sequence[torch.optim.Optimizer], read: Mapping[str, Any]) -> None:
    """Set the model, the optimizers and the generators of this rank to what was read."""
    for entry in rank_state.entries:
        tensor = entry.tensor(rank_state.model)
        if not tensor.is_meta:
            tensor.copy_(read["model"][entry.name])
        if entry.name in rank_state.masters:
            value = read["model"][entry.name]
            part = rank_state.slices.get(entry.name)
            rank_state.masters[entry.name].copy_(value if part is None else part.of(value))
    if rank_state.scaler is not None and "loss_scale" in read:
        rank_state.scaler.restore(read["loss_scale"][0])
    for parameter in rank_state.trained.values():
        parameter.grad = None
    first = 0
    state = {
        name: _of_piece(values, rank_state.slices.get(name))
        for name, values in read.get("optim", {}).get("state", {}).items()
    }
    for optimizer in optimizers:
        last = first + len(optimizer.param_groups)
        groups = read["optim"]["param_groups"][first:last]
        restore_optimizer(optimizer, rank_state.names(), groups, state)
        first = last
    set_rng_states(rank_state.device, read["random"])


def _of_piece(values: Mapping[str, Any], part: Slice | None) -> Mapping[str, Any]:
    """The state of a parameter, or of the piece of it that this rank has."""
    if part is None:
        return values
    return {
        key: part.of(value).clone() if isinstance(value, Tensor) and tuple(value.shape) == part.shape else value
        for key, value in values.items()
    }
