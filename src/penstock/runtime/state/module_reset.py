"""The function that initializes each module of a model, as the constructor of the model does.

It is the module's own `reset_parameters()`, or a function of the user. A part of the model may also have a method
`_init_weights(module)`, as models of transformers do: the innermost such method then runs last.
"""

import inspect
from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.runtime.state.parameter_init import find_writes

Reset = Callable[[], object]
ModuleFunction = Callable[[nn.Module], object]


def find_resets(model: nn.Module, init: ModuleFunction | None) -> dict[nn.Module, Reset]:
    """Return the function that initializes each module; modules without one are left out.

    Args:
        model: The model.
        init: A function for modules without `reset_parameters`. With it, no `_init_weights` is called.
    """
    parts = {} if init is not None else _initializers(model)
    resets: dict[nn.Module, Reset] = {}
    for module in model.modules():
        own = getattr(module, "reset_parameters", None)
        steps: list[Reset] = [own] if callable(own) else []
        if init is not None and not steps:
            steps = [_bound(init, module)]
        if module in parts:
            steps.append(_bound(parts[module], module))
        if steps:
            resets[module] = _in_order(steps)
    return resets


def check_containers(model: nn.Module, init: ModuleFunction | None, provided: Collection[int]) -> None:
    """Check that nothing but its own module fills a tensor.

    A rank initializes only modules that hold tensors of its own. So `_init_weights` of a container, and an adapter
    layer of peft, which fill tensors of the modules inside, would not run.

    Args:
        model: The model.
        init: A function of the user, which replaces `_init_weights`.
        provided: The tensors whose values come from elsewhere, by id.

    Raises:
        InputError: A tensor would be initialized otherwise than by the constructor of the model.
    """
    parts = {} if init is not None else _initializers(model)
    names = {id(item): name for name, item in (*model.named_parameters(), *model.named_buffers())}
    for path, module in model.named_modules():
        inside = {id(item) for item in (*module.parameters(), *module.buffers()) if item.is_meta} - set(provided)
        own = {id(item) for item in (*module._parameters.values(), *module._buffers.values())}
        if not inside or inside & own:
            continue
        adapters = _adapters(module)
        written = [id(item) for item in adapters if id(item) in inside]
        if not written and module in parts:
            written = _written(_bound(parts[module], module), module, inside)
        if written:
            what = f"the layer {path!r} of peft" if adapters else f"_init_weights of {type(module).__name__} ({path!r})"
            raise InputError(
                f"the model is on the meta device, and {what} fills {names[written[0]]!r} of a module inside it",
                hint="Add adapters to a model on a real device."
                if adapters
                else "Create the model on a real device, read its weights with init=penstock.pretrained(folder), or "
                "pass init=, a function that fills modules.",
            )


def _initializers(model: nn.Module) -> dict[nn.Module, ModuleFunction]:
    """By module: the `_init_weights` of the innermost module around it that has one."""
    found: dict[nn.Module, ModuleFunction] = {}
    seen: set[nn.Module] = set()

    def visit(module: nn.Module, part: ModuleFunction | None) -> None:
        if module in seen:
            return
        seen.add(module)
        own = getattr(module, "_init_weights", None)
        if callable(own) and _takes_a_module(own):
            part = own
        if part is not None:
            found[module] = part
        for child in module.children():
            visit(child, part)

    visit(model, None)
    return found


def _takes_a_module(function: Callable[..., object]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    required = [item for item in parameters if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD]
    return len(required) == 1


def _adapters(module: nn.Module) -> list[Tensor]:
    """The adapter tensors of a layer of peft."""
    names = getattr(module, "adapter_layer_names", ()) if hasattr(module, "get_base_layer") else ()
    layers = [layer for name in names if isinstance(layer := getattr(module, name, None), nn.Module)]
    return [item for layer in layers for item in layer.parameters()]


def _written(reset: Reset, module: nn.Module, inside: Collection[int]) -> list[int]:
    """Run a function on the meta device, and return the tensors that it writes to."""
    tensors = [item for item in (*module.parameters(), *module.buffers()) if id(item) in inside]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return find_writes(reset, tensors)


def _bound(function: ModuleFunction, module: nn.Module) -> Reset:
    return lambda: function(module)


def _in_order(steps: list[Reset]) -> Reset:
    def reset() -> None:
        for step in steps:
            step()

    return reset
