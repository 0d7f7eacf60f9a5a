"""Loading of profiles: files of Penstock, PipeDream and Piper, Hugging Face config.json files, built-in model names."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock import io
from penstock.errors import InputError
from penstock.names import near_names, suggest_files
from penstock.profile.limits import MAX_BYTES, MAX_MICRO_BATCH_SIZE, MAX_SECONDS
from penstock.profile.readers import parse_pipedream, parse_piper
from penstock.profile.recipe import Precision, Recipe
from penstock.profile.types import FORMAT, UNNAMED_KIND, Profile

if TYPE_CHECKING:
    from penstock.profile.analytic import ParsedConfig

DEFAULT_KIND = "A100-80"

_KNOWN = "a profile of Penstock, a PipeDream graph, a Piper file or a Hugging Face config.json"


def load_profile(
    source: str,
    *,
    kinds: Sequence[str] = (),
    micro_batch_size: int | None = None,
    sequence: int | None = None,
    precision: Precision | None = None,
    recipe: Recipe | None = None,
) -> Profile:
    """Load a profile from a file, or compute it for a known model.

    Args:
        source: Path of a Penstock profile, a PipeDream graph, a Piper file or a Hugging Face config.json; or the name
            of a built-in model, such as "gpt2-xl".
        kinds: Device kinds to compute times for (default "A100-80"). PipeDream and Piper files do not name the device
            that they were measured on: a single kind names it. Penstock profiles take none.
        micro_batch_size: Rows of a micro-batch. For a PipeDream file, the micro-batch size of the measurement.
        sequence: Tokens of a row, for computed profiles of language models (default: the longest configured).
        precision: "bf16" (default), "fp16", "fp32", "tf32" or "fp8", for computed profiles.
        recipe: Precision, attention, checkpointing and tensor parallelism together, instead of `precision`.

    Returns:
        The profile. Its `assumptions` list everything that the source does not specify.

    Raises:
        FileError: The file cannot be read.
        InputError: The source is unknown, the file is invalid, or an argument does not apply to it.

    Example:
        >>> profile = load_profile("gpt2", kinds=["T4"], micro_batch_size=4, sequence=512)
        >>> profile.num_units, profile.micro_batch_size
        (26, 4)
    """
    if micro_batch_size is not None and not 1 <= micro_batch_size <= MAX_MICRO_BATCH_SIZE:
        raise InputError(f"micro-batch size must be 1 to {MAX_MICRO_BATCH_SIZE:,}, not {micro_batch_size:,}")
    if precision is not None:
        if recipe is not None:
            raise InputError("precision and recipe cannot be given together", hint="Put the precision into the recipe.")
        recipe = Recipe(precision=precision)
    if not _is_file(source):
        return _computed(_builtin(source), source, kinds, micro_batch_size, sequence, recipe)
    text = io.read_text(source).removeprefix("\ufeff")
    name = Path(source).stem
    form = _form(text, source)
    if form == "config":
        from penstock.profile.analytic import read_config

        return _computed(read_config(text, where=source), source, kinds, micro_batch_size, sequence, recipe)
    for what, value in (("sequence length", sequence), ("precision or recipe", recipe)):
        if value is not None:
            raise InputError(
                f"the {what} of a measured profile cannot be changed",
                where=source,
                hint="Omit it, or name a config.json or a built-in model.",
            )
    if form == "penstock":
        if kinds:
            raise InputError("the profile already names its device kinds", where=source, hint="Omit --kind.")
        profile = io.decode_json(text.encode(), Profile, where=source, expected_format=FORMAT)
        return _with_micro_batch_size(profile, micro_batch_size, source)
    kind = kinds[0] if len(kinds) == 1 else UNNAMED_KIND
    notes = []
    if form == "piper":
        profile = _with_micro_batch_size(
            parse_piper(text, name=name, where=source, kind=kind), micro_batch_size, source
        )
    else:
        profile = parse_pipedream(text, name=name, where=source, micro_batch_size=micro_batch_size or 1, kind=kind)
        if micro_batch_size is None:
            notes.append("The file does not specify its micro-batch size: assumed 1.")
    if len(kinds) == 1:
        notes.append(f"The file does not specify its device kind: assumed {kind}, as requested.")
    return _with_assumptions(profile, *notes)


def is_computed(source: str) -> bool:
    """Return whether `load_profile` computes the profile of this source, instead of reading measurements."""
    if not _is_file(source):
        return True
    return _form(io.read_text(source).removeprefix("\ufeff"), source) == "config"


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as JSON. The write is atomic.

    Args:
        profile: The profile.
        path: The file to write.

    Raises:
        FileError: The file cannot be written.

    Example:
        >>> import tempfile
        >>> profile = load_profile("gpt2", kinds=["T4"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_profile(profile, f"{folder}/gpt2.json")
        ...     load_profile(f"{folder}/gpt2.json") == profile
        True
    """
    io.write_whole(path, io.encode_json(profile))


class _Keys(msgspec.Struct):
    """The keys that distinguish the JSON formats; their values are not decoded."""

    format: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    nodes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    model_type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def _form(text: str, where: str) -> Literal["penstock", "piper", "config", "pipedream"]:
    if not text.lstrip().startswith(("{", "[")) and Path(where).suffix != ".json":
        return "pipedream"
    try:
        keys = msgspec.json.decode(text, type=_Keys)
    except msgspec.ValidationError:
        keys = _Keys()  # JSON, but not an object
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "penstock"  # its reader reports where the JSON is broken
    if keys.format is not msgspec.UNSET:
        return "penstock"
    if keys.model_type is not msgspec.UNSET:
        return "config"
    if keys.nodes is not msgspec.UNSET:
        return "piper"
    raise InputError("this JSON is not a profile", where=where, hint=f"Expected {_KNOWN}.")


def _is_file(source: str) -> bool:
    try:
        return Path(source).is_file()
    except (OSError, ValueError):  # such as a name that is too long for a path
        return False


def _builtin(source: str) -> str:
    from penstock.profile.analytic import BUILTIN_NAMES

    if source in BUILTIN_NAMES:
        return source
    # A name with a suffix or a folder is meant to be a file.
    is_path = bool(Path(source).suffix) or "/" in source
    near = suggest_files(source) or near_names(source, BUILTIN_NAMES, most=3, cutoff=0.8 if is_path else 0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Built-in names: {', '.join(BUILTIN_NAMES)}."
    raise InputError(f"{source[:100]!r} is neither a file nor a built-in model", hint=hint)


def _computed(
    model: "str | ParsedConfig",
    source: str,
    kinds: Sequence[str],
    micro_batch_size: int | None,
    sequence: int | None,
    recipe: Recipe | None,
) -> Profile:
    from penstock.profile.analytic import analytic_profile

    profile = analytic_profile(
        model,
        kinds=tuple(kinds) or (DEFAULT_KIND,),
        micro_batch_size=micro_batch_size or 1,
        sequence=sequence,
        recipe=recipe or Recipe(),
    )
    for unit in profile.units:
        if any(max(time.forward_s, time.input_grad_s, time.weight_grad_s) > MAX_SECONDS for time in unit.times):
            raise InputError(f"layer {unit.name!r} would take over {MAX_SECONDS:,.0f} seconds", where=source)
    notes = []
    if not kinds:
        notes.append(f"No device kind is specified: the times are for {DEFAULT_KIND}.")
    if micro_batch_size is None:
        notes.append("No micro-batch size is specified: assumed 1.")
    return _with_assumptions(profile, *notes)


def _with_assumptions(profile: Profile, *notes: str) -> Profile:
    return msgspec.structs.replace(profile, assumptions=(*profile.assumptions, *notes))


def _with_micro_batch_size(profile: Profile, micro_batch_size: int | None, where: str) -> Profile:
    if micro_batch_size is None or micro_batch_size == profile.micro_batch_size:
        return profile
    input_bytes = round(profile.input_bytes * micro_batch_size / profile.micro_batch_size)
    if input_bytes > MAX_BYTES:
        raise InputError(f"the model's input for {micro_batch_size:,} rows exceeds 2**60 bytes", where=where)
    return msgspec.structs.replace(profile, micro_batch_size=micro_batch_size, input_bytes=input_bytes)
