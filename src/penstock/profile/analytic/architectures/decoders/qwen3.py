"""Qwen3: Llama's blocks with RMSNorm of the heads of queries and keys."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.decoders.llama_like import llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.decoders.qwen2 import QwenWindows
from penstock.profile.analytic.architectures.model_config import Size, causal_classes
from penstock.profile.analytic.model_parts import Batch, Design


class Qwen3Config(QwenWindows, frozen=True, kw_only=True):
    """Qwen3 without experts."""

    head_dim: Size = 128
    attention_bias: bool = False

    CLASSES: ClassVar = causal_classes("Qwen3")

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        block = llama_like_block(self, qkv_bias=self.attention_bias, projection_bias=self.attention_bias)
        return llama_like_design(self, msgspec.structs.replace(block, query_key_norm=True), batch)
