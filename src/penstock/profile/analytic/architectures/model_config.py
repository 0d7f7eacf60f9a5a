"""What every architecture states about itself: its keys, classes and checks, and its layers."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from penstock.profile.analytic.blocks import Task
from penstock.profile.analytic.model_parts import Batch, Design

Size = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Layers = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
"""Like Size, but may be zero."""
FUSED_ATTENTION = "Attention is one fused kernel (FlashAttention): scores are not stored, the backward recomputes them"


class ConfigError(ValueError):
    """A value that is invalid or not understood.

    Args:
        key: The key of the configuration.
        what: What is wrong.
        hint: What to do about it.
    """

    def __init__(self, key: str, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.key = key
        self.what = what
        self.hint = hint


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a config.json that affect cost, with the defaults of transformers' configuration class.

    Subclasses are one for each value of "model_type". Fields have the names of their keys.

    Attributes:
        architectures: The class of the model. Empty: the first of `CLASSES`.
    """

    architectures: tuple[str, ...] = ()

    CLASSES: ClassVar[Mapping[str, Task]] = {}
    """The supported classes of transformers and their tasks. The first is the default."""
    ALIASES: ClassVar[Mapping[str, str]] = {}
    """Other names of keys that transformers accepts."""
    REQUIRED: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    """Keys that change the model in a way that is not understood, unless they have one of these values."""
    TAKES_IMAGES: ClassVar[bool] = False
    TENSOR_PARALLEL: ClassVar[bool] = False
    """Several GPUs can share every layer: attention and MLP are halves of their own, and the vocabulary is split."""
    LEARNED_POSITIONS: ClassVar[bool] = False
    """Rows cannot be longer than `longest`."""

    @property
    def task(self) -> Task:
        """The task of the model's class."""
        return self.CLASSES[self.architectures[0] if self.architectures else next(iter(self.CLASSES))]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks and width of the residual stream, for the name of the profile."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """Tokens of a row, if none are specified."""
        raise NotImplementedError

    def check(self) -> None:
        """Check that the values fit together.

        Raises:
            ConfigError: They do not.
        """

    def design(self, batch: Batch) -> Design:
        """Return the layers of the model for one micro-batch."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Return the assumptions of this architecture."""
        raise NotImplementedError


def causal_classes(prefix: str, *, token_classes: bool = True) -> dict[str, Task]:
    """Return the supported classes of a decoder, such as LlamaForCausalLM.

    >>> list(causal_classes("Opt", token_classes=False))
    ['OptForCausalLM', 'OptForSequenceClassification']
    """
    classes: dict[str, Task] = {
        f"{prefix}ForCausalLM": "language model",
        f"{prefix}ForSequenceClassification": "row classes",
    }
    if token_classes:
        classes[f"{prefix}ForTokenClassification"] = "token classes"
    return classes


def must_divide(part: int, part_key: str, whole: int, whole_key: str) -> None:
    """Check that one size is a multiple of another.

    Raises:
        ConfigError: It is not.
    """
    if whole % part:
        what = f"{whole_key} ({whole:,}) must be divisible by {part_key} ({part:,})"
        raise ConfigError(part_key, what, f"Change {whole_key} or {part_key}.")


def check_heads(hidden: int, heads: int, key_value_heads: int, head_size: int | None) -> None:
    """Check the heads of grouped-query attention.

    Raises:
        ConfigError: Heads do not divide the hidden size, or groups do not divide the heads.
    """
    if head_size is None:
        must_divide(heads, "num_attention_heads", hidden, "hidden_size")
    must_divide(key_value_heads, "num_key_value_heads", heads, "num_attention_heads")


def sliding_layers(layer_types: tuple[str, ...] | None, layers: int, default: list[bool]) -> list[bool]:
    """Return which layers have a sliding window, from "layer_types" or the family's default.

    Raises:
        ConfigError: The list has another length than there are layers, or an unknown type.
    """
    if layer_types is None:
        return default
    if len(layer_types) != layers:
        raise ConfigError("layer_types", f"has {len(layer_types):,} entries for {layers:,} layers")
    known = ("full_attention", "sliding_attention")
    for name in layer_types:
        if name not in known:
            raise ConfigError("layer_types", f"{name[:60]!r} is not supported; known are {' and '.join(known)}")
    return [name == "sliding_attention" for name in layer_types]


def attention_note(*, causal: bool) -> str:
    """Return the assumption about attention kernels."""
    causal_part = "; the causal mask halves its arithmetic" if causal else ""
    return f"{FUSED_ATTENTION}{causal_part}."


def tie_note(what: str, *, tied: bool) -> str:
    """Return the assumption about tied tables."""
    return f"The {what} share one table." if tied else f"The {what} have separate tables."


def window_note(window: int | None, is_windowed: list[bool]) -> list[str]:
    """Return the assumption about sliding windows, if a layer has one."""
    if window is None or not any(is_windowed):
        return []
    return [f"In {sum(is_windowed):,} of {len(is_windowed):,} blocks a token sees {window:,} tokens at most."]


def experts_note(per_token: int, count: int) -> str:
    """Return the assumption about mixtures of experts."""
    return (
        f"Routing is balanced: each token uses {per_token:,} of {count:,} experts, all experts get the same number of "
        "tokens, and none is dropped. All experts are on the device of their layer; the balancing loss is not counted."
    )


ROTARY_NOTE = "RMSNorm and rotary embeddings are fused kernels; keys and values are saved unexpanded."
TABLE_NAMES = "token embedding and head"
