"""Qwen2: Llama's blocks with biases for queries, keys and values."""

from typing import ClassVar

from penstock.profile.analytic.architectures.decoders.llama_like import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.model_config import Size, causal_classes, sliding_layers
from penstock.profile.analytic.model_parts import Batch, Design


class QwenWindows(LlamaLike, frozen=True, kw_only=True):
    """The keys of Qwen's sliding windows, which start at a layer."""

    vocab_size: Size = 151_936
    intermediate_size: Size = 22016
    num_key_value_heads: Size | None = 32
    max_position_embeddings: Size = 32768
    use_sliding_window: bool = False
    sliding_window: Size | None = 4096
    max_window_layers: int = 28
    layer_types: tuple[str, ...] | None = None

    @property
    def window(self) -> int | None:
        """The sliding window, if it is used."""
        return self.sliding_window if self.use_sliding_window else None

    def windowed(self) -> list[bool]:
        """Return which blocks have the sliding window."""
        layers = self.num_hidden_layers
        default = [self.window is not None and layer >= self.max_window_layers for layer in range(layers)]
        return sliding_layers(self.layer_types, layers, default)


class Qwen2Config(QwenWindows, frozen=True, kw_only=True):
    """Qwen2 and Qwen2.5."""

    CLASSES: ClassVar = causal_classes("Qwen2")
    TENSOR_PARALLEL: ClassVar = True

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        return llama_like_design(self, llama_like_block(self, qkv_bias=True), batch)
