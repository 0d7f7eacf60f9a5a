"""Which tensor of a file belongs to which tensor of a model.

Models of transformers have a base model and a head. `base_model_prefix` is the attribute that holds the base model, so
a file of the base model alone has the names without this prefix. Adapters of peft add parts to names, which files of
the original model do not have.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from torch import nn

from penstock.runtime.state.state_index import Entry

Rename = Callable[[str], str]


class NameMatch(NamedTuple):
    """The result of matching names."""

    sources: dict[str, tuple[str, ...]]
    """By the first name of a model's tensor: its names in the file. A tied tensor may have several."""
    missing: tuple[str, ...]
    """Tensors of the model that the file lacks."""
    missing_head: tuple[str, ...]
    """The same, outside the base model."""
    unexpected: tuple[str, ...]
    """Tensors of the file that the model lacks."""
    unexpected_head: tuple[str, ...]
    """The same, outside the base model."""


def match_names(model: nn.Module, entries: Sequence[Entry], names: Collection[str], rename: Rename | None) -> NameMatch:
    """Match the names of a file with those of a model.

    Args:
        model: The model.
        entries: The tensors of its state.
        names: The names in the file.
        rename: Converts a name in the model to one in the file, before all other rules.
    """
    inner, path = _base_of_adapters(model)
    prefix = f"{getattr(inner, 'base_model_prefix', '')}."
    has_base = prefix != "." and any(name.startswith(prefix) for name in names)
    expects_base = prefix != "." and hasattr(inner, prefix[:-1])

    def plain(key: str) -> str:
        key = (key if rename is None else rename(key)).removeprefix(path)
        return _without_adapters(key) if path else key

    def stored(key: str) -> str:
        if expects_base and not has_base:
            return key.removeprefix(prefix)
        return prefix + key if has_base and not expects_base else key

    def is_head(name: str) -> bool:
        """Whether a name with the prefix of the base model is outside it."""
        return (has_base or expects_base) and not name.startswith(prefix)

    sources: dict[str, tuple[str, ...]] = {}
    missing: list[str] = []
    missing_head: list[str] = []
    known = {stored(plain(name)) for name in _unsaved_buffers(model)}
    for entry in entries:
        keys = [plain(key) for key in entry.keys]
        known |= {stored(key) for key in keys}
        present = tuple(dict.fromkeys(stored(key) for key in keys if stored(key) in names))
        if present:
            sources[entry.name] = present
        elif not _is_adapter(model, path, entry) and not _ignores(inner, "_keys_to_ignore_on_load_missing", keys):
            in_head = expects_base and all(map(is_head, keys))
            (missing_head if in_head else missing).append(entry.name)
    rest = [
        name
        for name in names
        if name not in known and not _ignores(inner, "_keys_to_ignore_on_load_unexpected", [name])
    ]
    return NameMatch(
        sources,
        tuple(missing),
        tuple(missing_head),
        tuple(name for name in rest if not (has_base and is_head(name))),
        tuple(name for name in rest if has_base and is_head(name)),
    )


def _base_of_adapters(model: nn.Module) -> tuple[nn.Module, str]:
    """The model inside a model of peft, and the prefix of its names; any other model itself."""
    get_base_model: Any = getattr(model, "get_base_model", None)
    if hasattr(model, "peft_config") and callable(get_base_model):
        inner: nn.Module = get_base_model()
        for path, module in model.named_modules():
            if module is inner:
                return inner, f"{path}."
    return model, ""


def _is_adapter(model: nn.Module, path: str, entry: Entry) -> bool:
    """Whether a tensor is one that peft adds: its name has a part such as "lora_A"."""
    prefix = getattr(getattr(model, "base_model", None), "prefix", "") if path else ""
    return bool(prefix) and any(part.startswith(prefix) for part in entry.name.split("."))


def _without_adapters(key: str) -> str:
    key = re.sub(r"\.(base_layer|original_module)\.", ".", key)
    return re.sub(r"\.modules_to_save\.[^.]+\.", ".", key)


def _unsaved_buffers(model: nn.Module) -> list[str]:
    return [
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    ]


def _ignores(model: nn.Module, attribute: str, names: Sequence[str]) -> bool:
    """Whether the model declares that these names may be missing, or unexpected."""
    patterns = getattr(model, attribute, None) or ()
    return any(re.search(pattern, name) for pattern in patterns for name in names)
