"""One door to every profile: a file of Penstock, PipeDream or Piper, a Hugging Face config.json, or a built-in name."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock import io
from penstock.errors import InputError
from penstock.profile.readers import parse_pipedream, parse_piper
from penstock.profile.types import FORMAT, MAX_BYTES, MAX_MICRO_BATCH_SIZE, MAX_SECONDS, Profile

if TYPE_CHECKING:
    from penstock.profile.analytic import ReadConfig

Precision = Literal["bf16", "fp32"]

DEFAULT_KIND = "A100-80"

_KNOWN = "a profile of Penstock, a PipeDream graph, a Piper file or a Hugging Face config.json"


def load_profile(
    source: str,
    *,
    kinds: Sequence[str] = (),
    micro_batch_size: int | None = None,
    sequence: int | None = None,
    precision: Precision | None = None,
) -> Profile:
    """The profile in a file, or the computed one of a built-in name or a config.json.

    `rows` are those of a micro-batch; for a PipeDream file, which does not say, those that it was measured with.
    `kinds`, `sequence` and `precision` are for computed profiles. Files keep the kinds that they were measured on;
    those of PipeDream and Piper do not name any, and if `kinds` has exactly one, it is taken to be that.
    """
    if micro_batch_size is not None and not 1 <= micro_batch_size <= MAX_MICRO_BATCH_SIZE:
        raise InputError(f"a micro-batch must have 1 to {MAX_MICRO_BATCH_SIZE:,} rows, not {micro_batch_size:,}")
    if not _is_file(source):
        return _computed(_builtin(source), source, kinds, micro_batch_size, sequence, precision)
    text = io.read_text(source).removeprefix("\ufeff")
    name = Path(source).stem
    form = _form(text, source)
    if form == "config":
        from penstock.profile.analytic import read_config

        return _computed(read_config(text, where=source), source, kinds, micro_batch_size, sequence, precision)
    for what, value in (("sequence length", sequence), ("precision", precision)):
        if value is not None:
            raise InputError(
                f"the {what} of a measured profile cannot be chosen",
                where=source,
                hint="Leave it out, or name a config.json or a built-in model.",
            )
    if form == "penstock":
        if kinds:
            raise InputError("this profile has its device kinds already", where=source, hint="Leave --kind out.")
        profile = io.decode_json(text.encode(), Profile, where=source, expected_format=FORMAT)
        return _with_micro_batch_size(profile, micro_batch_size, source)
    kind = kinds[0] if len(kinds) == 1 else "profiled"
    assumed = []
    if form == "piper":
        profile = _with_micro_batch_size(
            parse_piper(text, name=name, where=source, kind=kind), micro_batch_size, source
        )
    else:
        profile = parse_pipedream(text, name=name, where=source, micro_batch_size=micro_batch_size or 1, kind=kind)
        if micro_batch_size is None:
            assumed.append("The file does not say how many rows its micro-batch had: taken as 1.")
    if len(kinds) == 1:
        assumed.append(f"The file does not say what it was measured on: taken as {kind}, as asked for.")
    return _assuming(profile, *assumed)


def is_computed(source: str) -> bool:
    """Whether a source is a model whose profile is computed, and not a file of measurements."""
    if not _is_file(source):
        return True
    return _form(io.read_text(source).removeprefix("\ufeff"), source) == "config"


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as JSON, whole or not at all."""
    io.write_whole(path, io.encode_json(profile))


class _Keys(msgspec.Struct):
    """The keys that tell the JSON formats apart; their values do not matter here."""

    format: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    nodes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    model_type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def _form(text: str, where: str) -> Literal["penstock", "piper", "config", "pipedream"]:
    if not text.lstrip().startswith(("{", "[")) and Path(where).suffix != ".json":
        return "pipedream"
    try:
        keys = msgspec.json.decode(text, type=_Keys)
    except msgspec.ValidationError:
        keys = _Keys()  # JSON, but no object
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "penstock"  # whose reader says where the JSON is broken
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
    except (OSError, ValueError):  # such as a name that is too long for any file
        return False


def _builtin(source: str) -> str:
    from penstock.profile.analytic import BUILTIN_NAMES

    if source in BUILTIN_NAMES:
        return source
    near = difflib.get_close_matches(source[:100].lower(), BUILTIN_NAMES, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Built-in names: {', '.join(BUILTIN_NAMES)}."
    raise InputError(f"{source[:100]!r} is neither a file nor a built-in name", hint=hint)


def _computed(
    model: "str | ReadConfig",
    source: str,
    kinds: Sequence[str],
    micro_batch_size: int | None,
    sequence: int | None,
    precision: Precision | None,
) -> Profile:
    from penstock.profile.analytic import analytic_profile

    profile = analytic_profile(
        model,
        kinds=tuple(kinds) or (DEFAULT_KIND,),
        micro_batch_size=micro_batch_size or 1,
        sequence=sequence,
        precision=precision or "bf16",
    )
    for unit in profile.units:
        if any(max(time.forward_s, time.input_grad_s, time.weight_grad_s) > MAX_SECONDS for time in unit.times):
            raise InputError(f"unit {unit.name!r} would take over {MAX_SECONDS:,.0f} seconds", where=source)
    assumed = []
    if not kinds:
        assumed.append(f"No device kind was asked for: the times are for {DEFAULT_KIND}.")
    if micro_batch_size is None:
        assumed.append("No number of rows was asked for: a micro-batch has 1 row.")
    return _assuming(profile, *assumed)


def _assuming(profile: Profile, *assumed: str) -> Profile:
    return msgspec.structs.replace(profile, assumptions=(*profile.assumptions, *assumed))


def _with_micro_batch_size(profile: Profile, micro_batch_size: int | None, where: str) -> Profile:
    if micro_batch_size is None or micro_batch_size == profile.micro_batch_size:
        return profile
    input_bytes = round(profile.input_bytes * micro_batch_size / profile.micro_batch_size)
    if input_bytes > MAX_BYTES:
        raise InputError(f"the model's input for {micro_batch_size:,} rows is over 2**60 bytes", where=where)
    return msgspec.structs.replace(profile, micro_batch_size=micro_batch_size, input_bytes=input_bytes)
