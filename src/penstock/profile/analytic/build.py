"""Building an analytic profile: parts are priced on every device kind at three micro-batch sizes and chained."""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.errors import InputError
from penstock.names import ask_names
from penstock.profile.analytic.architectures import ARCHITECTURES, ModelConfig
from penstock.profile.analytic.assumptions import assumptions
from penstock.profile.analytic.builtin import BUILTIN, Model
from penstock.profile.analytic.configs import ParsedConfig, config_from_mapping
from penstock.profile.analytic.model_parts import Batch, Design
from penstock.profile.analytic.roofline import part_sizes, part_times
from penstock.profile.analytic.vision import VggConfig, resnet_design, vgg_design
from penstock.profile.device_kinds import KINDS, DeviceKind, Precision, find_kind, near_kinds
from penstock.profile.types import ParameterCounts, Profile, Tie, Unit

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
    name, model, parsed = _find_model(name_or_config)
    tokens = _find_sequence(name, model, sequence)
    designs = {
        count: _design(model, Batch(micro_batch_size=count, sequence=tokens, element_bytes=_ELEMENT_BYTES[precision]))
        for count in (micro_batch_size * multiple for multiple in ROW_MULTIPLES)
    }
    notes = assumptions(model, precision, sequence=tokens, is_default_sequence=sequence is None)
    notes += parsed.notes if parsed else ()
    if parsed and parsed.defaulted:
        notes.append(
            f"Missing from the configuration, set to the defaults of the family: {', '.join(parsed.defaulted)}."
        )
    return Profile(
        name=name,
        micro_batch_size=micro_batch_size,
        units=_units(designs, device_kinds, precision),
        input_bytes=_within_limit(designs[micro_batch_size].input_bytes),
        ties=_ties(designs[micro_batch_size], _ELEMENT_BYTES[precision]),
        gradient_ratio=1.0,
        optimizer_ratio=_OPTIMIZER_RATIO[precision],
        assumptions=tuple(notes),
        parameter_counts=_parameter_counts(designs[micro_batch_size]),
        architecture=_architecture(model),
    )


def _architecture(model: Model) -> str:
    """The model_type of a Hugging Face configuration; empty for convolutional networks."""
    return next((name for name, kind in ARCHITECTURES.items() if type(model) is kind), "")


def _design(model: Model, batch: Batch) -> Design:
    if isinstance(model, ModelConfig):
        return model.design(batch)
    return vgg_design(model, batch) if isinstance(model, VggConfig) else resnet_design(model, batch)


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
    numbers = {layer.name: number for number, layer in enumerate(design.chain)}
    units = tuple(numbers[name] for name in design.tied_layers) or (0, len(design.chain) - 1)
    return (Tie(name="word embedding", parameter_bytes=design.tied_parameters * element_bytes, units=units),)


def _parameter_counts(design: Design) -> ParameterCounts | None:
    """Count parameters for models with experts; tied ones count once."""
    chain = [design.parts[layer.part] for layer in design.chain]
    uses = max(len(design.tied_layers), 2)
    tied = (uses - 1) * design.tied_parameters
    total, active = (sum(getattr(part, name) for part in chain) - tied for name in ("parameters", "active_parameters"))
    return None if active == total else ParameterCounts(total=total, active=active)


def _find_model(
    name_or_config: str | ParsedConfig | Mapping[str, object],
) -> tuple[str, Model, ParsedConfig | None]:
    if isinstance(name_or_config, str):
        model = BUILTIN.get(name_or_config)
        if model is None:
            hint = f"Choose one of: {', '.join(BUILTIN)}; or pass the config.json of another model."
            raise InputError(f"unknown model {name_or_config[:60]!r}", hint=hint)
        return name_or_config, model, None
    parsed = _parse_config(name_or_config)
    layers, hidden = parsed.config.shape
    return f"{parsed.family}-{layers}x{hidden}", parsed.config, parsed


def _parse_config(config: ParsedConfig | Mapping[str, object]) -> ParsedConfig:
    if isinstance(config, Mapping):
        return config_from_mapping(config, where="config")
    # A configuration built in Python is checked like one from a file.
    raw = {"model_type": config.family, **msgspec.to_builtins(config.config)}
    return msgspec.structs.replace(config, config=config_from_mapping(raw, where="config").config)


def _find_sequence(name: str, model: Model, sequence: int | None) -> int:
    if not isinstance(model, ModelConfig) or model.TAKES_IMAGES:
        if sequence is not None:
            raise InputError(f"{name} takes images, which have no sequence length", where="sequence", hint="Omit it.")
        return model.longest if isinstance(model, ModelConfig) else 1
    if sequence is None:
        return model.longest
    _check_count(sequence, MAX_SEQUENCE, "sequence")
    if sequence > model.longest and model.LEARNED_POSITIONS:
        what = f"sequence length ({sequence:,}) exceeds the {model.longest:,} learned positions of {name}"
        raise InputError(what, where="sequence", hint=f"Use at most {model.longest:,}.")
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
