"""Building an analytic profile: parts are priced on every device kind at three micro-batch sizes and chained."""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.errors import InputError
from penstock.names import ask_names
from penstock.profile.analytic.assumptions import assumptions
from penstock.profile.analytic.builtin import BUILTIN, Model
from penstock.profile.analytic.configs import (
    BertConfig,
    Config,
    Gpt2Config,
    LlamaConfig,
    ParsedConfig,
    VitConfig,
    config_from_mapping,
)
from penstock.profile.analytic.model_parts import Batch, Design
from penstock.profile.analytic.roofline import part_sizes, part_times
from penstock.profile.analytic.transformer import bert_design, gpt2_design, llama_design, vit_design, vit_sequence
from penstock.profile.analytic.vision import ResnetConfig, VggConfig, resnet_design, vgg_design
from penstock.profile.device_kinds import KINDS, DeviceKind, Precision, find_kind, near_kinds
from penstock.profile.types import Profile, Tie, Unit

MAX_MICRO_BATCH_SIZE = 1_000_000
MAX_SEQUENCE = 10_000_000
MAX_BYTES = 2**60
ROW_MULTIPLES = (1, 2, 4)
"""Times are computed at these multiples of the micro-batch size, so that a fit separates launch overhead from work."""

_ELEMENT_BYTES: dict[Precision, int] = {"bf16": 2, "fp32": 4}
# Bytes of AdamW state per byte of parameters: master copy and two moments in fp32, or the two moments alone.
_OPTIMIZER_RATIO: dict[Precision, float] = {"bf16": 6.0, "fp32": 2.0}


def analytic_profile(
    name_or_config: str | ParsedConfig | Mapping[str, object],
    *,
    kinds: Sequence[str],
    micro_batch_size: int,
    sequence: int | None = None,
    precision: Precision = "bf16",
) -> Profile:
    """Compute the profile of a model from its configuration and the data sheets of devices.

    Args:
        name_or_config: A built-in name, a parsed configuration, or the contents of a config.json.
        kinds: Device kinds with data sheets.
        micro_batch_size: Rows of a micro-batch.
        sequence: Tokens of a row. None: the longest configured.
        precision: "bf16" or "fp32".

    Raises:
        InputError: The model, a device kind or the precision is unknown, or a size is out of range.

    Example:
        >>> profile = analytic_profile("gpt2", kinds=["T4"], micro_batch_size=4, sequence=512)
        >>> profile.num_units, profile.units[1].name
        (26, 'block.0.attn')
    """
    if precision not in tuple(_ELEMENT_BYTES):
        known = ", ".join(_ELEMENT_BYTES)
        raise InputError(f"unknown precision {precision!r}", where="precision", hint=f"Choose one of: {known}.")
    _check_count(micro_batch_size, MAX_MICRO_BATCH_SIZE, "micro_batch_size")
    device_kinds = _find_kinds(kinds)
    name, model, defaulted = _find_model(name_or_config)
    tokens = _find_sequence(name, model, sequence)
    designs = {
        count: _design(model, Batch(micro_batch_size=count, sequence=tokens, element_bytes=_ELEMENT_BYTES[precision]))
        for count in (micro_batch_size * multiple for multiple in ROW_MULTIPLES)
    }
    notes = assumptions(model, precision, sequence=tokens, is_default_sequence=sequence is None)
    if defaulted:
        notes.append(f"Missing from the configuration, set to the defaults of the family: {', '.join(defaulted)}.")
    return Profile(
        name=name,
        micro_batch_size=micro_batch_size,
        units=_units(designs, device_kinds, precision),
        input_bytes=_within_limit(designs[micro_batch_size].input_bytes),
        ties=_ties(designs[micro_batch_size], _ELEMENT_BYTES[precision]),
        gradient_ratio=1.0,
        optimizer_ratio=_OPTIMIZER_RATIO[precision],
        assumptions=tuple(notes),
    )


def _design(model: Model, batch: Batch) -> Design:
    match model:
        case Gpt2Config():
            return gpt2_design(model, batch)
        case LlamaConfig():
            return llama_design(model, batch)
        case BertConfig():
            return bert_design(model, batch)
        case VitConfig():
            return vit_design(model, batch)
        case VggConfig():
            return vgg_design(model, batch)
        case ResnetConfig():
            return resnet_design(model, batch)


def _units(designs: Mapping[int, Design], kinds: Sequence[DeviceKind], precision: Precision) -> tuple[Unit, ...]:
    # Each part is priced once, however many layers repeat it.
    first = next(iter(designs.values()))
    priced = {}
    for key, part in first.parts.items():
        sizes = tuple(part_sizes(design.parts[key], micro_batch_size) for micro_batch_size, design in designs.items())
        for size in sizes:
            _within_limit(max(size.cut_bytes, size.saved_bytes, size.pending_bytes or 0))
        times = tuple(
            part_times(design.parts[key], micro_batch_size, kind, precision)
            for kind in kinds
            for micro_batch_size, design in designs.items()
        )
        priced[key] = (_within_limit(part.parameters * _ELEMENT_BYTES[precision]), sizes, times)
    return tuple(
        Unit(name=layer.name, parameter_bytes=parameter_bytes, sizes=sizes, times=times)
        for layer in first.chain
        for parameter_bytes, sizes, times in (priced[layer.part],)
    )


def _ties(design: Design, element_bytes: int) -> tuple[Tie, ...]:
    if not design.tied_parameters:
        return ()
    ends = (0, len(design.chain) - 1)
    return (Tie(name="word embedding", parameter_bytes=design.tied_parameters * element_bytes, units=ends),)


def _find_model(name_or_config: str | ParsedConfig | Mapping[str, object]) -> tuple[str, Model, tuple[str, ...]]:
    if isinstance(name_or_config, str):
        model = BUILTIN.get(name_or_config)
        if model is None:
            hint = f"Choose one of: {', '.join(BUILTIN)}; or pass the config.json of another model."
            raise InputError(f"unknown model {name_or_config[:60]!r}", hint=hint)
        return name_or_config, model, ()
    parsed = _parse_config(name_or_config)
    config = parsed.config
    layers = config.n_layer if isinstance(config, Gpt2Config) else config.num_hidden_layers
    return f"{parsed.family}-{layers}x{_hidden(config)}", config, parsed.defaulted


def _parse_config(config: ParsedConfig | Mapping[str, object]) -> ParsedConfig:
    if isinstance(config, Mapping):
        return config_from_mapping(config, where="config")
    # A configuration built in Python is checked like one from a file.
    raw = {"model_type": config.family, **msgspec.structs.asdict(config.config)}
    return msgspec.structs.replace(config_from_mapping(raw, where="config"), defaulted=config.defaulted)


def _hidden(config: Config) -> int:
    return config.n_embd if isinstance(config, Gpt2Config) else config.hidden_size


def _find_sequence(name: str, model: Model, sequence: int | None) -> int:
    if isinstance(model, VitConfig | VggConfig | ResnetConfig):
        if sequence is not None:
            raise InputError(f"{name} takes images, which have no sequence length", where="sequence", hint="Omit it.")
        return vit_sequence(model) if isinstance(model, VitConfig) else 1
    longest = model.n_positions if isinstance(model, Gpt2Config) else model.max_position_embeddings
    if sequence is None:
        return longest
    _check_count(sequence, MAX_SEQUENCE, "sequence")
    if sequence > longest and not isinstance(model, LlamaConfig):
        what = f"sequence length ({sequence:,}) exceeds the {longest:,} learned positions of {name}"
        raise InputError(what, where="sequence", hint=f"Use at most {longest:,}.")
    return sequence


def _find_kinds(kinds: Sequence[str]) -> list[DeviceKind]:
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    if not names:
        hint = f"Choose from: {', '.join(KINDS)}."
        raise InputError("at least one device kind is required", where="kinds", hint=hint)
    device_kinds = []
    for name in names:
        kind = find_kind(name) if isinstance(name, str) else None
        if kind is None:
            question = ask_names(near_kinds(name)) if isinstance(name, str) else ""
            hint = f"{question} Choose from: {', '.join(KINDS)}.".strip()
            raise InputError(f"no data sheet for device kind {name!r}", where="kinds", hint=hint)
        if kind in device_kinds:
            raise InputError(f"duplicate device kind {name!r}", where="kinds", hint="Name each kind once.")
        device_kinds.append(kind)
    return device_kinds


def _check_count(value: int, maximum: int, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= maximum:
        raise InputError(f"must be a whole number from 1 to {maximum:,}, not {value!r:.40}", where=where)


def _within_limit(value: int) -> int:
    if value > MAX_BYTES:
        what = f"a layer would need {value:.3g} bytes; the limit is {MAX_BYTES:.3g}"
        raise InputError(what, hint="Use a smaller micro-batch, a shorter sequence or a smaller model.")
    return value
