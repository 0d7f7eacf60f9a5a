"""Initialization of a model that was created on the meta device, where tensors have shapes but no values.

Each module fills its own tensors with its `reset_parameters()`, while torch's generators are seeded with (seed, number
of the module in `model.modules()`). So a value depends on the seed and the model alone: a rank that materializes a part
of the model and a single process that materializes all of it get the same bits. A tensor that several modules hold is
filled by each of them, in order.

A model, or a part of one, may have a method `_init_weights(module)`, as models of transformers do. Its modules are
filled by their `reset_parameters()` and then by this method, as when the model is created on a real device.
"""

from collections.abc import Callable, Collection
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.runtime.rng import fork_rng
from penstock.runtime.state.module_reset import check_containers, find_resets
from penstock.runtime.state.parameter_init import ModuleInit, storage_of
from penstock.runtime.state.pretrained_weights import Pretrained, Weights, find_weights
from penstock.runtime.state.state_index import state_entries

Init: TypeAlias = Callable[[nn.Module], object] | Literal["checkpoint"] | Pretrained
"""Fills modules without `reset_parameters`; or "checkpoint": a checkpoint will provide the values; or their files."""

HINT = (
    "Add a reset_parameters() that fills the module, pass init=, a function that fills such modules, create the model "
    "on a real device, read its weights with init=penstock.pretrained(folder), or start from a checkpoint with "
    'init="checkpoint" and pipe.load.'
)


def materialize(
    model: nn.Module, *, seed: int = 0, device: torch.device | str = "cpu", init: Init | None = None
) -> nn.Module:
    """Materialize a model that was created on the meta device, with the values that a pipeline would give it.

    Args:
        model: The model. It is changed in place.
        seed: Seed of the values.
        device: Device of the materialized tensors.
        init: A function that fills the tensors of a module without `reset_parameters`; or `penstock.pretrained`, to
            read weights from files.

    Returns:
        The model.

    Raises:
        InputError: A tensor on the meta device would not be filled, or a module cannot be initialized on its own.

    Example:
        >>> with torch.device("meta"):
        ...     model = nn.Linear(2, 3)
        >>> materialize(model, seed=1).weight.device
        device(type='cpu')
    """
    check_materializable(model, init)
    materialize_tensors(model, None, seed=seed, device=torch.device(device), init=init)
    return model


def is_on_meta(model: nn.Module) -> bool:
    """Whether any parameter or buffer of the model is on the meta device."""
    return any(_own_meta(module) for module in model.modules())


def check_materializable(model: nn.Module, init: Init | None) -> None:
    """Check that every tensor on the meta device would be filled.

    Raises:
        InputError: A tensor would keep undefined values.
        FileError: Files of weights cannot be read.
        MismatchError: Files of weights are of another model.
    """
    provided, resets = _provided(model, _find_weights(model, init), init), find_resets(model, _function(init))
    filled = provided | {id(item) for module in resets for item in _own_meta(module).values()}
    for path, module in model.named_modules():
        for name, item in _own_meta(module).items():
            if id(item) not in filled:
                raise _unfilled(path, module, name)
        for name, item in vars(module).items():
            if isinstance(item, Tensor) and item.is_meta:
                raise InputError(
                    f"{_join(path, name)} is a tensor on the meta device, but neither a parameter nor a buffer",
                    hint="Register it with register_buffer, or create the model on a real device.",
                )
    check_containers(model, _function(init), provided)


def materialize_tensors(
    model: nn.Module, names: Collection[str] | None, *, seed: int, device: torch.device, init: Init | None
) -> None:
    """Materialize the named parameters and buffers that are on the meta device; all if `names` is None.

    Pretrained weights are read for all named tensors, on the meta device or not.
    """
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    requested = {id(item) for name, item in named.items() if item.is_meta and (names is None or name in names)}
    paths = {module: path for path, module in model.named_modules()}
    weights, resets = _find_weights(model, init), find_resets(model, _function(init))
    provided = _provided(model, weights, init)
    modules = [
        (number, module, own)
        for number, (module, own) in enumerate((module, _own_meta(module)) for module in model.modules())
        if any(id(item) in requested for item in own.values())
    ]
    real: dict[int, Tensor] = {}
    for _, module, own in modules:
        for name, item in own.items():
            if id(item) not in real:
                real[id(item)] = _empty(item, device)
            _set(module, name, real[id(item)])
    all_storages = {
        storage_of(item): _join(path, name)
        for path, module in model.named_modules()
        for name, item in (*module._parameters.items(), *module._buffers.items())
        if item is not None
    }
    filled = set(provided)
    for number, module, own in modules:
        # With a reset, tensors of the same module that are provided get values twice: the second ones remain.
        if module not in resets or all(id(item) in provided for item in own.values()):
            continue
        module_init = ModuleInit(module, paths[module], own, all_storages)
        with fork_rng(device, seed, number), torch.device(device), torch.no_grad():
            filled |= {id(own[name]) for name in module_init.run(resets[module])}
    for _, module, own in modules:
        for name, item in own.items():
            if id(item) not in requested:
                # Materialized only so that the module could initialize itself.
                _set(module, name, item)
            elif id(item) not in filled:
                raise _unfilled(paths[module], module, name)
    if weights is not None:
        weights.load(model, names)


def _find_weights(model: nn.Module, init: Init | None) -> Weights | None:
    return find_weights(model, init) if isinstance(init, Pretrained) else None


def _provided(model: nn.Module, weights: Weights | None, init: Init | None) -> set[int]:
    """The tensors whose values come from files or from a checkpoint, by id."""
    entries = state_entries(model) if init == "checkpoint" else weights.entries.values() if weights else ()
    return {id(entry.tensor(model)) for entry in entries}


def _function(init: Init | None) -> Callable[[nn.Module], object] | None:
    """The function of the user that fills modules."""
    if isinstance(init, Pretrained):
        return init.init
    return init if callable(init) else None


def _own_meta(module: nn.Module) -> dict[str, Tensor]:
    own = {**module._parameters, **module._buffers}
    return {name: item for name, item in own.items() if item is not None and item.is_meta}


def _empty(item: Tensor, device: torch.device) -> Tensor:
    """An uninitialized tensor on a real device, filled with NaN (or zero) so that it does not depend on old memory."""
    empty = torch.empty_like(item, device=device, requires_grad=False)
    empty.fill_(float("nan") if item.is_floating_point() or item.is_complex() else 0)
    if not isinstance(item, nn.Parameter):
        return empty
    parameter = nn.Parameter(empty, requires_grad=item.requires_grad)
    parameter.__dict__.update(item.__dict__)
    return parameter


def _set(module: nn.Module, name: str, item: Tensor) -> None:
    # By setattr, not in the dictionary of the module: some modules keep references to their parameters elsewhere.
    setattr(module, name, item)


def _unfilled(path: str, module: nn.Module, name: str) -> InputError:
    return InputError(
        f"{_join(path, name)} would not be initialized: the model is on the meta device, and {type(module).__name__} "
        + ("does not fill it" if hasattr(module, "reset_parameters") else "has no reset_parameters()"),
        hint=HINT,
    )


def _join(path: str, name: str) -> str:
    return repr(f"{path}.{name}" if path else name)
