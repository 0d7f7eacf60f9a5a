"""Initialization of a model that was created on the meta device, where tensors have shapes but no values.

Each module fills its own tensors with its `reset_parameters()`, while torch's generators are seeded with (seed, number
of the module in `model.modules()`). So a value depends on the seed and the model alone: a rank that materializes a part
of the model and a single process that materializes all of it get the same bits. A tensor that several modules hold is
filled by each of them, in order.
"""

from collections.abc import Callable, Collection
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.runtime.rng import fork_rng
from penstock.runtime.state.parameter_init import ModuleInit, storage_of

Init: TypeAlias = Callable[[nn.Module], object] | Literal["checkpoint"]
"""Fills modules without `reset_parameters`; or "checkpoint": a checkpoint will provide the values."""

HINT = (
    "Add a reset_parameters() that fills the module, pass init=, a function that fills such modules, create the model "
    'on a real device, or start from a checkpoint with init="checkpoint" and pipe.load.'
)


def materialize(
    model: nn.Module, *, seed: int = 0, device: torch.device | str = "cpu", init: Init | None = None
) -> nn.Module:
    """Materialize a model that was created on the meta device, with the values that a pipeline would give it.

    Args:
        model: The model. It is changed in place.
        seed: Seed of the values.
        device: Device of the materialized tensors.
        init: A function that fills the tensors of a module without `reset_parameters`.

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
    """
    filled = {
        id(item)
        for module in model.modules()
        if _reset_of(module, init) is not None
        for item in _own_meta(module).values()
    }
    for path, module in model.named_modules():
        for name, item in _own_meta(module).items():
            loaded = init == "checkpoint" and name not in module._non_persistent_buffers_set
            if id(item) not in filled and not loaded:
                raise _unfilled(path, module, name)
        for name, item in vars(module).items():
            if isinstance(item, Tensor) and item.is_meta:
                raise InputError(
                    f"{_join(path, name)} is a tensor on the meta device, but neither a parameter nor a buffer",
                    hint="Register it with register_buffer, or create the model on a real device.",
                )


def materialize_tensors(
    model: nn.Module, names: Collection[str] | None, *, seed: int, device: torch.device, init: Init | None
) -> None:
    """Materialize the named parameters and buffers that are on the meta device; all if `names` is None."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    requested = {id(item) for name, item in named.items() if item.is_meta and (names is None or name in names)}
    paths = {module: path for path, module in model.named_modules()}
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
    filled: set[int] = set()
    for number, module, own in modules:
        reset = _reset_of(module, init)
        if reset is None or not _needs_values(module, own, init):
            continue
        module_init = ModuleInit(module, paths[module], own, all_storages)
        with fork_rng(device, seed, number), torch.device(device), torch.no_grad():
            filled |= {id(own[name]) for name in module_init.run(reset)}
    for _, module, own in modules:
        for name, item in own.items():
            if id(item) not in requested:
                # Materialized only so that the module could initialize itself.
                _set(module, name, item)
            elif id(item) not in filled and _needs_values(module, {name: item}, init):
                raise _unfilled(paths[module], module, name)


def _own_meta(module: nn.Module) -> dict[str, Tensor]:
    own = {**module._parameters, **module._buffers}
    return {name: item for name, item in own.items() if item is not None and item.is_meta}


def _reset_of(module: nn.Module, init: Init | None) -> Callable[[], object] | None:
    reset: Callable[[], object] | None = getattr(module, "reset_parameters", None)
    if callable(reset):
        return reset
    return (lambda: init(module)) if callable(init) else None


def _needs_values(module: nn.Module, own: Collection[str], init: Init | None) -> bool:
    """Whether initialization is needed: a checkpoint provides everything but non-persistent buffers."""
    return init != "checkpoint" or any(name in module._non_persistent_buffers_set for name in own)


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
