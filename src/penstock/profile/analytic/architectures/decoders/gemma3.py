"""Gemma 3, its language model: Gemma 2 with norms of queries and keys, and one full block in six."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.decoders.gemma2 import Gemma2Config, gemma_block, gemma_design
from penstock.profile.analytic.architectures.model_config import Size, sliding_layers
from penstock.profile.analytic.blocks import Task
from penstock.profile.analytic.model_parts import Batch, Design


class Gemma3TextConfig(Gemma2Config, frozen=True, kw_only=True):
    """Gemma 3 without images."""

    vocab_size: Size = 262_208
    max_position_embeddings: Size = 131_072
    final_logit_softcapping: float | None = None
    sliding_window_pattern: Size = 6

    CLASSES: ClassVar[dict[str, Task]] = {
        "Gemma3ForCausalLM": "language model",
        "Gemma3TextForSequenceClassification": "row classes",
    }

    def windowed(self) -> list[bool]:
        """All blocks except every sixth."""
        layers, pattern = self.num_hidden_layers, self.sliding_window_pattern
        return sliding_layers(self.layer_types, layers, [(layer + 1) % pattern != 0 for layer in range(layers)])

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        return gemma_design(self, msgspec.structs.replace(gemma_block(self), query_key_norm=True), batch)
