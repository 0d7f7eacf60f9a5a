"""Mistral: Llama's blocks with a sliding window in all of them."""

from typing import ClassVar

from penstock.profile.analytic.architectures.decoders.llama_like import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.model_config import Size, causal_classes
from penstock.profile.analytic.model_parts import Batch, Design


class MistralConfig(LlamaLike, frozen=True, kw_only=True):
    """Mistral 7B and its successors."""

    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    max_position_embeddings: Size = 131_072
    sliding_window: Size | None = 4096

    CLASSES: ClassVar = causal_classes("Mistral")
    TENSOR_PARALLEL: ClassVar = True
    REQUIRED: ClassVar = {"layer_types": (None,)}

    @property
    def window(self) -> int | None:
        """The sliding window."""
        return self.sliding_window

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        return llama_like_design(self, llama_like_block(self), batch)
