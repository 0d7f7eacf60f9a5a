"""Phi-3: Llama's blocks with one product for q, k and v, and one for gate and up."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.decoders.llama_like import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.model_config import Size, causal_classes
from penstock.profile.analytic.model_parts import Batch, Design


class Phi3Config(LlamaLike, frozen=True, kw_only=True):
    """Phi-3, Phi-3.5 and Phi-4."""

    vocab_size: Size = 32064
    hidden_size: Size = 3072
    intermediate_size: Size = 8192
    max_position_embeddings: Size = 4096
    sliding_window: Size | None = None

    CLASSES: ClassVar = causal_classes("Phi3")
    TENSOR_PARALLEL: ClassVar = True

    @property
    def window(self) -> int | None:
        """The sliding window."""
        return self.sliding_window

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        block = msgspec.structs.replace(llama_like_block(self), joint_qkv=True, joint_gate=True)
        return llama_like_design(self, block, batch)
