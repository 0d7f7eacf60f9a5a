"""Building an analytic profile: parts are priced on every device kind at three micro-batch sizes and chained."""

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from penstock.errors import InputError
from penstock.names import ask_names
from penstock.profile.analytic.architectures import ARCHITECTURES, ModelConfig
from penstock.profile.analytic.assumptions import assumptions
from penstock.profile.analytic.builtin import BUILTIN, Model
from penstock.profile.analytic.checkpointing import with_checkpointing
from penstock.profile.analytic.configs import ParsedConfig, config_from_mapping
from penstock.profile.analytic.model_parts import Batch, Design
from penstock.profile.analytic.roofline import Pricer, part_sizes, part_times, pricer
from penstock.profile.analytic.vision import VggConfig, resnet_design, vgg_design
from penstock.profile.collectives import AllReduce
from penstock.profile.data_sheets import DeviceKind
from penstock.profile.device_kinds import KINDS, find_kind, group_size, near_kinds
from penstock.profile.recipe import MAX_TENSOR_PARALLEL, Attention, Checkpointing, Precision, Recipe
from penstock.profile.spread import COMPUTED
from penstock.profile.types import ParameterCounts, Profile, Tie, Unit

MAX_MICRO_BATCH_SIZE = 1_000_000
MAX_SEQUENCE = 10_000_000
MAX_BYTES = 2**60
ROW_MULTIPLES = (1, 2, 4)
"""Times are computed at these multiples of the micro-batch size, so that a fit separates launch overhead from work."""

DEFAULT_RECIPE = Recipe()

# Bytes of AdamW state per byte of parameters, by the bytes of a parameter: master copy and two moments in fp32, or the
# two moments alone.
_OPTIMIZER_RATIO = {2: 6.0, 4: 2.0}


def analytic_profile(
    name_or_config: str | ParsedConfig | Mapping[str, object],
    *,
    kinds: Sequence[str | DeviceKind],
    micro_batch_size: int,
    sequence: int | None = None,
    recipe: Recipe = DEFAULT_RECIPE,
    all_reduce: AllReduce | None = None,
) -> Profile:
    """Compute the profile of a model from its configuration and the data sheets of devices.

    Args:
        name_or_config: A built-in name, a parsed configuration, or the contents of a config.json.
        kinds: Device kinds with data sheets, or data sheets.
        micro_batch_size: Rows of a micro-batch.
        sequence: Tokens of a row. None: the longest configured.
        recipe: Precision, attention, activation checkpointing and tensor parallelism.
        all_reduce: Seconds of an all-reduce over a number of GPUs that share layers, of a number of bytes. None:
            estimated from the data sheet.

    Raises:
        InputError: The model or a device kind is unknown, a size is out of range, a device has no products of the
            precision, or the layers cannot be shared by that many GPUs.

    Example:
        >>> profile = analytic_profile("gpt2", kinds=["T4"], micro_batch_size=4, sequence=512)
        >>> profile.num_units, profile.units[1].name
        (26, 'block.0.attn')
    """
    _check_recipe(recipe)
    _check_count(micro_batch_size, MAX_MICRO_BATCH_SIZE, "micro_batch_size")
    device_kinds = _find_kinds(kinds, recipe.tensor_parallel)
    name, model, parsed = _find_model(name_or_config)
    tokens = _find_sequence(name, model, sequence)
    _check_tensor_parallel(name, model, recipe.tensor_parallel)
    designs = {
        count: with_checkpointing(
            _design(model, Batch(micro_batch_size=count, sequence=tokens, recipe=recipe)), recipe.checkpointing
        )
        for count in (micro_batch_size * multiple for multiple in ROW_MULTIPLES)
    }
    notes = assumptions(model, recipe, sequence=tokens, is_default_sequence=sequence is None)
    notes += parsed.notes if parsed else ()
    if parsed and parsed.defaulted:
        notes.append(
            f"Missing from the configuration, set to the defaults of the family: {', '.join(parsed.defaulted)}."
        )
    return Profile(
        name=name,
        micro_batch_size=micro_batch_size,
        units=_units(designs, [pricer(kind, recipe, all_reduce) for kind in device_kinds]),
        input_bytes=_within_limit(designs[micro_batch_size].input_bytes),
        ties=_ties(designs[micro_batch_size], recipe.element_bytes),
        gradient_ratio=1.0,
        optimizer_ratio=_OPTIMIZER_RATIO[recipe.element_bytes],
        assumptions=tuple(notes),
        parameter_counts=_parameter_counts(designs[micro_batch_size]),
        architecture=_architecture(model),
        spread=COMPUTED,
    )


def _architecture(model: Model) -> str:
    """The model_type of a Hugging Face configuration; empty for convolutional networks."""
    return next((name for name, kind in ARCHITECTURES.items() if type(model) is kind), "")


def _design(model: Model, batch: Batch) -> Design:
    if isinstance(model, ModelConfig):
        return model.design(batch)
    return vgg_design(model, batch) if isinstance(model, VggConfig) else resnet_design(model, batch)


def _check_recipe(recipe: Recipe) -> None:
    for name, value, known in (
        ("precision", recipe.precision, get_args(Precision)),
        ("attention", recipe.attention, get_args(Attention)),
        ("checkpointing", recipe.checkpointing, get_args(Checkpointing)),
    ):
        if value not in known:
            raise InputError(f"unknown {name} {value!r:.60}", where=name, hint=f"Choose one of: {', '.join(known)}.")
    _check_count(recipe.tensor_parallel, MAX_TENSOR_PARALLEL, "tensor_parallel")


def _check_tensor_parallel(name: str, model: Model, count: int) -> None:
    if count > 1 and not (isinstance(model, ModelConfig) and model.TENSOR_PARALLEL):
        known = ", ".join(family for family, kind in ARCHITECTURES.items() if kind.TENSOR_PARALLEL)
        raise InputError(
            f"{name} cannot be computed with layers shared by {count} GPUs",
            where="tensor_parallel",
            hint=f"Use 1, or a model of these families: {known}.",
        )


def _units(designs: Mapping[int, Design], pricers: Sequence[Pricer]) -> tuple[Unit, ...]:
    # Each part is priced once, however many layers repeat it.
    first = next(iter(designs.values()))
    element_bytes = pricers[0].recipe.element_bytes
    priced = {}
    for key, part in first.parts.items():
        sizes = tuple(part_sizes(design.parts[key], micro_batch_size) for micro_batch_size, design in designs.items())
        for size in sizes:
            _within_limit(max(size.cut_bytes, size.saved_bytes, size.pending_bytes or 0))
        times = tuple(
            part_times(design.parts[key], micro_batch_size, each)
            for each in pricers
            for micro_batch_size, design in designs.items()
        )
        again = tuple(_within_limit(design.parts[key].recomputed_bytes) for design in designs.values())
        priced[key] = Unit(
            name=key,
            parameter_bytes=_within_limit(part.parameters * element_bytes),
            sizes=sizes,
            times=times,
            recomputed_bytes=again if any(again) else (),
        )
    return tuple(msgspec.structs.replace(priced[layer.part], name=layer.name) for layer in first.chain)


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


def _find_kinds(kinds: Sequence[str | DeviceKind], tensor_parallel: int) -> list[DeviceKind]:
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    if not names:
        hint = f"Choose from: {', '.join(KINDS)}."
        raise InputError("at least one device kind is required", where="kinds", hint=hint)
    device_kinds = []
    for name in names:
        kind = name if isinstance(name, DeviceKind) else find_kind(name) if isinstance(name, str) else None
        if kind is None:
            question = ask_names(near_kinds(name)) if isinstance(name, str) else ""
            hint = f"{question} Choose from: {', '.join(KINDS)}.".strip()
            raise InputError(f"no data sheet for device kind {name!r}", where="kinds", hint=hint)
        size = group_size(name) if isinstance(name, str) else 1
        if size not in (1, tensor_parallel):
            raise InputError(
                f"{name} is a group of {size} GPUs, but the tensor-parallel degree is {tensor_parallel}",
                where="kinds",
                hint=f"Set the degree to {size} (--tensor-parallel {size}).",
            )
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
