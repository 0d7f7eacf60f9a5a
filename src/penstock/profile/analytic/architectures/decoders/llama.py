"""Llama: rotary embeddings, RMSNorm, SwiGLU, grouped queries."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.decoders.llama_like import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.model_config import causal_classes
from penstock.profile.analytic.model_parts import Batch, Design


class LlamaConfig(LlamaLike, frozen=True, kw_only=True):
    """Llama 1 to 3."""

    attention_bias: bool = False
    mlp_bias: bool = False

    CLASSES: ClassVar = causal_classes("Llama")
    TENSOR_PARALLEL: ClassVar = True

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        block = llama_like_block(self, qkv_bias=self.attention_bias, projection_bias=self.attention_bias)
        return llama_like_design(self, msgspec.structs.replace(block, mlp_bias=self.mlp_bias), batch)
