"""Detection of models that skip layers at random in training (LayerDrop). Such a model is no chain of blocks."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from penstock.errors import InputError
from penstock.model.tracing import Record

_NAMES = ("layerdrop", "layer_drop")


def require_every_layer(model: nn.Module, record: Record | None = None) -> None:
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


def _branches_on_random_numbers(record: Record) -> bool:
    random: set[int] = set()
    for event in record.events:
        follows = not random.isdisjoint(event.uses)
        if follows and event.reads_values:
            return True
        if event.is_random or (follows and not event.is_block):
            random.update(event.makes)
    return False
