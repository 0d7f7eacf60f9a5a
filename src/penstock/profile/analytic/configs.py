"""Model configurations in the format of Hugging Face's config.json. Only the keys that affect cost are read.

`architectures/` states the keys of each model family.
"""

import json
from collections.abc import Mapping

import msgspec

from penstock.errors import InputError
from penstock.profile.analytic.architectures import ARCHITECTURES, ConfigError, ModelConfig

_HINT = "docs/analytic.md lists the supported keys."
_MEASURE = "Measure other models: penstock profile script.py:make_model, or penstock.profile in Python."
_OTHER_STRUCTURE = (
    "add_cross_attention",
    "kv_lora_rank",
    "moe_intermediate_size",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts",
    "num_experts_per_tok",
    "num_local_experts",
    "pruned_heads",
    "q_lora_rank",
    "shared_expert_intermediate_size",
)
"""Keys that add or remove parameters in the architectures that have them. Elsewhere they are not understood."""
_CLASSIFIERS = ("row classes", "token classes", "images")


class ParsedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration, and the keys that were missing and have defaults.

    Attributes:
        config: The configuration.
        defaulted: Names of the missing keys.
        notes: Assumptions about keys that are read differently than the file says.
    """

    config: ModelConfig
    defaulted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The value of "model_type" for this configuration."""
        return next(name for name, kind in ARCHITECTURES.items() if kind is type(self.config))


def read_config(text: str, *, where: str) -> ParsedConfig:
    """Parse the text of a config.json.

    Args:
        text: The JSON document.
        where: Name of the file, for errors.

    Raises:
        InputError: The JSON is broken, the model family is unsupported, or a value is invalid.

    Example:
        >>> read_config('{"model_type": "gpt2", "n_layer": 3}', where="config.json").config.n_layer
        3
    """
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        at = f"{where}:{error.lineno}:{error.colno}"
        raise InputError(f"broken JSON: {error.msg}", where=at, hint="Fix the file or download it again.") from None
    except (ValueError, RecursionError):
        raise InputError("broken JSON: nested too deeply, or a number is too long", where=where) from None
    if not isinstance(raw, dict):
        hint = "Check that this is a config.json."
        raise InputError("a model configuration must be a JSON object", where=where, hint=hint)
    return config_from_mapping(raw, where=where)


def config_from_mapping(raw: Mapping[str, object], *, where: str) -> ParsedConfig:
    """Convert a decoded config.json; keys that do not affect cost are ignored."""
    kind = _find_kind(raw, where)
    values = _values(raw, kind, where)
    try:
        config = msgspec.convert(values, type=kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        raise InputError(what, where=f"{where}, at {path.strip('`')}", hint=_HINT) from None
    try:
        _check_class(config)
        config.check()
    except ConfigError as problem:
        raise InputError(problem.what, where=f"{where}, at $.{problem.key}", hint=problem.hint or _HINT) from None
    return ParsedConfig(config=config, defaulted=_defaulted(config, values), notes=_notes(raw))


def _find_kind(raw: Mapping[str, object], where: str) -> type[ModelConfig]:
    family = raw.get("model_type")
    if isinstance(family, str) and family in ARCHITECTURES:
        return ARCHITECTURES[family]
    actual = (
        f"not {family[:60]!r}" if isinstance(family, str) else "but is not a string" if family else "but is missing"
    )
    hint = f"Only these architectures can be computed. {_MEASURE}"
    if family == "gemma3":
        hint = "Only the language model of Gemma 3 can be computed: its text_config, with model_type gemma3_text."
    raise InputError(
        f'the key "model_type" must be one of {", ".join(ARCHITECTURES)}, {actual}', where=where, hint=hint
    )


def _values(raw: Mapping[str, object], kind: type[ModelConfig], where: str) -> dict[str, object]:
    """Return the values of the fields, under their own names."""
    for key, accepted in kind.REQUIRED.items():
        # Types are compared too: 1 equals True.
        if key in raw and not any(raw[key] == value and type(raw[key]) is type(value) for value in accepted):
            what = f"{raw[key]!r:.60} changes the model in a way that cannot be computed"
            hint = f"Supported: {', '.join(json.dumps(value) for value in accepted)}. {_MEASURE}"
            raise InputError(what, where=f"{where}, at $.{key}", hint=hint)
    known = {*kind.__struct_fields__, *kind.ALIASES, *kind.REQUIRED}
    for key in _OTHER_STRUCTURE:
        if raw.get(key) and key not in known:
            what = f"{raw['model_type']} has no key {key}, and {raw[key]!r:.60} would change the model"
            raise InputError(what, where=f"{where}, at $.{key}", hint=f"Remove the key. {_MEASURE}")
    values = {name: raw[name] for name in kind.__struct_fields__ if name in raw}
    for alias, name in kind.ALIASES.items():
        if alias not in raw:
            continue
        if name in values and values[name] != raw[alias]:
            what = f"{alias} ({raw[alias]!r:.40}) and {name} ({values[name]!r:.40}) are the same key, but differ"
            raise InputError(what, where=f"{where}, at $.{alias}", hint="Remove one of them.")
        values[name] = raw[alias]
    if values.get("architectures", ()) is None:
        del values["architectures"]
    labels = raw.get("id2label")
    has_labels = "num_labels" in kind.__struct_fields__ and isinstance(labels, Mapping) and len(labels) > 0
    if isinstance(labels, Mapping) and has_labels and values.setdefault("num_labels", len(labels)) != len(labels):
        what = f"num_labels is {values['num_labels']!r:.40}, but id2label has {len(labels):,} entries"
        raise InputError(what, where=f"{where}, at $.num_labels", hint="Remove one of them.")
    return values


def _check_class(config: ModelConfig) -> None:
    for name in config.architectures[:1]:
        if name not in config.CLASSES:
            raise ConfigError(
                "architectures",
                f"the class {name[:60]!r} cannot be computed; supported are {', '.join(config.CLASSES)}",
                f"Set architectures to a supported class. {_MEASURE}",
            )
    if len(config.architectures) > 1:
        raise ConfigError("architectures", "has several classes", "Keep the one to train.")


def _defaulted(config: ModelConfig, values: Mapping[str, object]) -> tuple[str, ...]:
    unused = {"architectures"} if config.task in _CLASSIFIERS else {"architectures", "num_labels"}
    return tuple(name for name in config.__struct_fields__ if name not in values and name not in unused)


def _notes(raw: Mapping[str, object]) -> tuple[str, ...]:
    if raw.get("quantization_config") is None:
        return ()
    return ("quantization_config is ignored: parameters have the precision of training.",)
