"""Values for a model that was made on the meta device, where tensors have shapes and no numbers.

Each module fills its own tensors by its `reset_parameters()`, with torch's generators begun at (seed, number of the
module in `model.modules()`). So a value depends on the seed and the model alone: a rank that makes a part of the model
real, and one process that makes all of it, get the same bits. A tensor that several modules hold is filled by each of
them, in order.
"""

from collections.abc import Callable, Collection
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.runtime.rng import drawing_from
from penstock.runtime.state.parameter_init import Filling, storage_of

Init: TypeAlias = Callable[[nn.Module], object] | Literal["checkpoint"]
"""What fills modules without `reset_parameters`; or "checkpoint": values come when one is loaded."""

HINT = (
    "Give the module a reset_parameters() that fills it, give init=, a function that fills such a module, make the "
    'model on a real device, or start from a checkpoint with init="checkpoint" and pipe.load.'
)


def materialize(
    model: nn.Module, *, seed: int = 0, device: torch.device | str = "cpu", init: Init | None = None
) -> nn.Module:
    """Make everything real that the model has on the meta device, with the values that a pipeline would give it.

    `init(module)` fills the tensors of a module that has no `reset_parameters`. The model is changed in place.
    """
    check_fillable(model, init)
    make_real(model, None, seed=seed, device=torch.device(device), init=init)
    return model


def is_on_meta(model: nn.Module) -> bool:
    """Whether some of the model is on the meta device."""
    return any(_own_meta(module) for module in model.modules())


def check_fillable(model: nn.Module, init: Init | None) -> None:
    """Refuse a model with tensors on the meta device that nothing would fill."""
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
                    hint="Register it with register_buffer, or make the model on a real device.",
                )


def make_real(
    model: nn.Module, wanted: Collection[str] | None, *, seed: int, device: torch.device, init: Init | None
) -> None:
    """Make these parameters and buffers real, of those on the meta device; all if none are named."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    asked = {id(item) for name, item in named.items() if item.is_meta and (wanted is None or name in wanted)}
    paths = {module: path for path, module in model.named_modules()}
    modules = [
        (number, module, own)
        for number, (module, own) in enumerate((module, _own_meta(module)) for module in model.modules())
        if any(id(item) in asked for item in own.values())
    ]
    real: dict[int, Tensor] = {}
    for _, module, own in modules:
        for name, item in own.items():
            if id(item) not in real:
                real[id(item)] = _empty(item, device)
            _put(module, name, real[id(item)])
    everything = {
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
        filling = Filling(module, paths[module], own, everything)
        with drawing_from(device, seed, number), torch.device(device), torch.no_grad():
            filled |= {id(own[name]) for name in filling.run(reset)}
    for _, module, own in modules:
        for name, item in own.items():
            if id(item) not in asked:
                # Made only so that the module could fill itself.
                _put(module, name, item)
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
    """A checkpoint brings all but the buffers that models keep out of their state."""
    return init != "checkpoint" or any(name in module._non_persistent_buffers_set for name in own)


def _empty(item: Tensor, device: torch.device) -> Tensor:
    """The same on a real device. No number in it passes for a value, and none depends on what was in memory."""
    made = torch.empty_like(item, device=device, requires_grad=False)
    made.fill_(float("nan") if item.is_floating_point() or item.is_complex() else 0)
    if not isinstance(item, nn.Parameter):
        return made
    parameter = nn.Parameter(made, requires_grad=item.requires_grad)
    parameter.__dict__.update(item.__dict__)
    return parameter


def _put(module: nn.Module, name: str, item: Tensor) -> None:
    # Not into the dictionary of the module: some modules keep their parameters in further places.
    setattr(module, name, item)


def _unfilled(path: str, module: nn.Module, name: str) -> InputError:
    return InputError(
        f"nothing gives {_join(path, name)} its values: the model is on the meta device, and {type(module).__name__} "
        + ("does not fill it" if hasattr(module, "reset_parameters") else "has no reset_parameters()"),
        hint=HINT,
    )


def _join(path: str, name: str) -> str:
    return repr(f"{path}.{name}" if path else name)
