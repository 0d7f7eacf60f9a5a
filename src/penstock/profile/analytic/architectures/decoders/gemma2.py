"""Gemma 2: norms before and after every half, alternating sliding windows, soft caps."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.decoders.llama_like import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.model_config import Layers, Size, causal_classes, sliding_layers
from penstock.profile.analytic.blocks import Block
from penstock.profile.analytic.model_parts import Batch, Design
from penstock.profile.analytic.operations import pointwise


class Gemma2Config(LlamaLike, frozen=True, kw_only=True):
    """Gemma 2."""

    vocab_size: Size = 256_000
    hidden_size: Size = 2304
    intermediate_size: Size = 9216
    num_hidden_layers: Layers = 26
    num_attention_heads: Size = 8
    num_key_value_heads: Size = 4
    head_dim: Size = 256
    max_position_embeddings: Size = 8192
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    sliding_window: Size | None = 4096
    layer_types: tuple[str, ...] | None = None
    final_logit_softcapping: float | None = 30.0

    CLASSES: ClassVar = causal_classes("Gemma2")
    REQUIRED: ClassVar = {"use_bidirectional_attention": (None, False)}

    @property
    def window(self) -> int | None:
        """The sliding window."""
        return self.sliding_window

    def windowed(self) -> list[bool]:
        """Every second block, from the first."""
        layers = self.num_hidden_layers
        return sliding_layers(self.layer_types, layers, [layer % 2 == 0 for layer in range(layers)])

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        return gemma_design(self, gemma_block(self), batch)


def gemma_block(config: Gemma2Config) -> Block:
    """Return the block of Gemma 2."""
    block = llama_like_block(config, qkv_bias=config.attention_bias, projection_bias=config.attention_bias)
    return msgspec.structs.replace(block, branch_norms=True, activation="gelu")


def gemma_design(config: Gemma2Config, block: Block, batch: Batch) -> Design:
    """Return the design of Gemma 2 and 3: the embeddings are scaled, and the logits may be capped."""
    scale = pointwise("scale", block.stream_bytes(batch), forward=(2,), input_grad=(2,))
    capped = config.final_logit_softcapping is not None
    return llama_like_design(config, block, batch, embedding=(scale,), capped=capped)
