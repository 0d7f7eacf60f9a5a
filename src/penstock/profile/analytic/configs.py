"""Model configurations in the format of Hugging Face's config.json. Only the keys that affect cost are read.

Fields have the names of their keys; defaults are those that the model family documents.
"""

import json
from collections.abc import Mapping
from typing import Annotated

import msgspec

from penstock.errors import InputError

Size = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Layers = Annotated[int, msgspec.Meta(ge=1, le=10_000)]

_HINT = "docs/analytic.md lists the supported keys."


class Gpt2Config(msgspec.Struct, frozen=True, kw_only=True):
    """GPT-2: learned positions, pre-LayerNorm, GELU, causal."""

    vocab_size: Size = 50257
    n_positions: Size = 1024
    n_embd: Size = 768
    n_layer: Layers = 12
    n_head: Size = 12
    n_inner: Size | None = None
    """None: four times n_embd."""
    tie_word_embeddings: bool = True


class LlamaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Llama: rotary embeddings, RMSNorm, SwiGLU, grouped queries, causal."""

    vocab_size: Size = 32000
    hidden_size: Size = 4096
    intermediate_size: Size = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Size = 32
    num_key_value_heads: Size | None = None
    """None: num_attention_heads."""
    head_dim: Size | None = None
    """None: hidden_size / num_attention_heads."""
    max_position_embeddings: Size = 2048
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False


class BertConfig(msgspec.Struct, frozen=True, kw_only=True):
    """BERT with both pre-training heads: masked words and next sentence."""

    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    tie_word_embeddings: bool = True


class VitConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Vision transformer with a class token and a linear head on it."""

    hidden_size: Size = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    image_size: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 224
    patch_size: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 16
    num_channels: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 3
    num_labels: Size = 2
    qkv_bias: bool = True


Config = Gpt2Config | LlamaConfig | BertConfig | VitConfig

FAMILIES: Mapping[str, type[Config]] = {
    "gpt2": Gpt2Config,
    "llama": LlamaConfig,
    "bert": BertConfig,
    "vit": VitConfig,
}


class ParsedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration, and the keys that were missing and have defaults.

    Attributes:
        config: The configuration.
        defaulted: Names of the missing keys.
    """

    config: Config
    defaulted: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The value of "model_type" for this configuration."""
        return next(name for name, kind in FAMILIES.items() if kind is type(self.config))


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
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        actual = (
            f"not {family[:60]!r}" if isinstance(family, str) else "but is not a string" if family else "but is missing"
        )
        raise InputError(
            f'the key "model_type" must be one of {", ".join(FAMILIES)}, {actual}',
            where=where,
            hint="Only these families can be computed; measure other models with penstock.profile.",
        )
    kind = FAMILIES[family]
    values = {name: raw[name] for name in kind.__struct_fields__ if name in raw}
    labels = raw.get("id2label")
    if kind is VitConfig and "num_labels" not in values and isinstance(labels, Mapping) and labels:
        values["num_labels"] = len(labels)
    try:
        config = msgspec.convert(values, type=kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        raise InputError(what, where=f"{where}, at {path.strip('`')}", hint=_HINT) from None
    check_config(config, where=where)
    return ParsedConfig(config=config, defaulted=tuple(name for name in kind.__struct_fields__ if name not in values))


def check_config(config: Config, *, where: str) -> None:
    """Check that the sizes are consistent.

    Raises:
        InputError: Heads do not divide the hidden size, or a patch is larger than the image.
    """
    match config:
        case Gpt2Config():
            _must_divide(config.n_head, "n_head", config.n_embd, "n_embd", where)
        case LlamaConfig():
            heads = config.num_attention_heads
            if config.head_dim is None:
                _must_divide(heads, "num_attention_heads", config.hidden_size, "hidden_size", where)
            if config.num_key_value_heads is not None:
                shared = config.num_key_value_heads
                _must_divide(shared, "num_key_value_heads", heads, "num_attention_heads", where)
        case BertConfig() | VitConfig():
            heads = config.num_attention_heads
            _must_divide(heads, "num_attention_heads", config.hidden_size, "hidden_size", where)
    if isinstance(config, VitConfig) and config.patch_size > config.image_size:
        what = f"patch_size {config.patch_size:,} is larger than image_size {config.image_size:,}"
        raise InputError(what, where=f"{where}, at $.patch_size", hint=_HINT)


def _must_divide(part: int, part_key: str, whole: int, whole_key: str, where: str) -> None:
    if whole % part:
        what = f"{whole_key} ({whole:,}) must be divisible by {part_key} ({part:,})"
        raise InputError(what, where=f"{where}, at $.{part_key}", hint=f"Change {whole_key} or {part_key}.")
