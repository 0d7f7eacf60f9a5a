"""BLOOM: ALiBi instead of positions, a norm after the embedding."""

from typing import ClassVar

from penstock.profile.analytic.architectures.model_config import (
    TABLE_NAMES,
    Layers,
    ModelConfig,
    Size,
    attention_note,
    causal_classes,
    must_divide,
    tie_note,
)
from penstock.profile.analytic.blocks import (
    Block,
    attention_half,
    causal_chain,
    causal_head,
    mlp_half,
    token_embedding,
    uniform_halves,
)
from penstock.profile.analytic.model_parts import Batch, Design


class BloomConfig(ModelConfig, frozen=True, kw_only=True):
    """BLOOM and BLOOMZ."""

    vocab_size: Size = 250_880
    hidden_size: Size = 64
    n_layer: Layers = 2
    n_head: Size = 8
    seq_length: Size = 2048
    """Only the default for the length of a row: ALiBi has no limit."""
    tie_word_embeddings: bool = True
    num_labels: Size = 2

    CLASSES: ClassVar = causal_classes("Bloom")
    ALIASES: ClassVar = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks and hidden size."""
        return self.n_layer, self.hidden_size

    @property
    def longest(self) -> int:
        """The length of a row in training."""
        return self.seq_length

    def check(self) -> None:
        """Check the heads."""
        must_divide(self.n_head, "n_head", self.hidden_size, "hidden_size")

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        block = Block(
            hidden=self.hidden_size,
            heads=self.n_head,
            key_value_heads=self.n_head,
            head_size=self.hidden_size // self.n_head,
            inner=4 * self.hidden_size,
            causal=True,
            joint_qkv=True,
        )
        is_tied = self.tie_word_embeddings and self.task == "language model"
        return causal_chain(
            block,
            batch,
            embedding=(token_embedding(batch, self.vocab_size, self.hidden_size), block.norm("norm", batch)),
            parts={"attn": attention_half(block, batch), "mlp": mlp_half(block, batch)},
            blocks=uniform_halves(self.n_layer),
            head=causal_head(self.task, block, batch, vocabulary=self.vocab_size, labels=self.num_labels),
            tied=self.vocab_size * self.hidden_size if is_tied else 0,
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [
            attention_note(causal=True),
            "ALiBi is computed inside the attention kernel.",
            tie_note(TABLE_NAMES, tied=self.tie_word_embeddings),
        ]
