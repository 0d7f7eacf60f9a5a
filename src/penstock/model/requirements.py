"""What a model must be like to be split into blocks: its forward is Python code, and it calls every layer."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.model.tracing import Record

_GRAPHS_OPTION = "triton.cudagraphs"
_NAMES = ("layerdrop", "layer_drop")
"""Ends of the names of attributes that hold a probability to skip a layer."""


def is_compiled(module: nn.Module) -> bool:
    """Return whether calls of the module run compiled code, which is opaque and computes both gradients at once."""
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules


def require_plain_parameters(model: nn.Module) -> None:
    """Check that no other library has divided the parameters over ranks.

    Raises:
        InputError: A parameter or buffer is a DTensor.
    """
    for name, item in (*model.named_parameters(), *model.named_buffers()):
        if any(kind.__name__ == "DTensor" for kind in type(item).__mro__):
            raise InputError(
                f"{name} is a DTensor: its elements are divided over ranks (FSDP or tensor parallelism), which a "
                "pipeline does not support",
                hint="Pass the model before fully_shard or parallelize_module is applied to it.",
            )


def require_separate_launches(model: nn.Module) -> None:
    """Check that no layer replays a CUDA graph: its outputs are overwritten by the next micro-batch.

    Raises:
        InputError: A layer is compiled for CUDA graphs.
    """
    for name, module in model.named_modules():
        compiled = module._compiled_call_impl or (module if "_orig_mod" in module._modules else None)
        read_config = getattr(compiled, "get_compiler_config", None)
        config = None if read_config is None else read_config()
        if config and config.get(_GRAPHS_OPTION):
            raise InputError(
                f"layer {name or type(module).__name__!r} is compiled for whole-graph replay "
                '(torch.compile with mode="reduce-overhead" or "max-autotune"), whose outputs the next micro-batch '
                "overwrites",
                hint='Compile the layer without it: layer.compile(), or mode="max-autotune-no-cudagraphs".',
            )


def require_own_forward(model: nn.Module) -> None:
    """Check that the model as a whole is not compiled: a compiled forward cannot be split.

    Raises:
        InputError: It is.
    """
    if not is_compiled(model):
        return
    own = model._modules.get("_orig_mod") or model
    names = [name for name, module in own.named_modules() if isinstance(module, nn.ModuleList) and len(module)]
    layers = f"model.{names[0]}" if names else "model.children()"
    raise InputError(
        f"{type(own).__name__} is compiled as a whole (torch.compile), so its forward cannot be split into layers",
        hint=f"Compile the layers instead, and pass the model itself: for layer in {layers}: layer.compile()",
    )


def require_every_layer(model: nn.Module, record: "Record | None" = None) -> None:
    """Check that forward does not skip layers at random.

    Args:
        model: The model.
        record: A run of forward: a probability in a config counts only if forward branches on a random number. None:
            forward could not be split into blocks, for which any such probability is the likely cause.

    Raises:
        InputError: A module in training mode has a probability to skip layers.
    """
    if not any(module.training for module in model.modules()):
        return
    in_modules = dict(_probabilities(model.named_modules()))
    in_configs = dict(_probabilities(_configs(model)))
    if in_modules or (in_configs and (record is None or _branches_on_random_numbers(record))):
        places = in_modules or in_configs
        names = dict.fromkeys(place.rpartition(".")[2] for place in in_configs or in_modules)
        raise InputError(
            f"{type(model).__name__} skips layers at random in training: "
            + ", ".join(f"model.{place} is {value:g}" for place, value in places.items()),
            hint=f"Build the model with {', '.join(f'{name}=0' for name in names)}; in a model that is built, set "
            f"{', '.join(f'model.{place}' for place in places)} to 0.",
        )


@contextmanager
def refuse_autograd() -> Iterator[None]:
    """Context of a forward without gradients, which fails if forward itself computes gradients.

    Raises:
        InputError: It does.
    """
    try:
        yield
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        raise InputError(
            f"forward computes gradients itself ({error}), such as a gradient penalty. Its backward cannot be divided "
            "into stages",
            hint="Train without this term, or without a pipeline.",
        ) from error


def _configs(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the configs of all modules, each once."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        config = module.__dict__.get("config")
        if hasattr(config, "__dict__") and id(config) not in seen:
            seen.add(id(config))
            yield f"{prefix}.config" if prefix else "config", config


def _probabilities(objects: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield the probabilities above 0 among the attributes of these objects, and their places."""
    for prefix, item in objects:
        for name, value in vars(item).items():
            if name.endswith(_NAMES) and isinstance(value, float | int) and value > 0:
                yield f"{prefix}.{name}" if prefix else name, float(value)


def _branches_on_random_numbers(record: "Record") -> bool:
    random: set[int] = set()
    for event in record.events:
        follows = not random.isdisjoint(event.uses)
        if follows and event.reads_values:
            return True
        if event.is_random or (follows and not event.is_block):
            random.update(event.makes)
    return False
