"""GPT-NeoX (Pythia): rotary embeddings, LayerNorm, parallel or sequential residual."""

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
    parallel_block,
    token_embedding,
    uniform_halves,
)
from penstock.profile.analytic.model_parts import Batch, Design


class GptNeoxConfig(ModelConfig, frozen=True, kw_only=True):
    """GPT-NeoX and Pythia."""

    vocab_size: Size = 50432
    hidden_size: Size = 6144
    num_hidden_layers: Layers = 44
    num_attention_heads: Size = 64
    intermediate_size: Size = 24576
    max_position_embeddings: Size = 2048
    tie_word_embeddings: bool = False
    use_parallel_residual: bool = True
    attention_bias: bool = True
    num_labels: Size = 2

    CLASSES: ClassVar = causal_classes("GPTNeoX")

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks and hidden size."""
        return self.num_hidden_layers, self.hidden_size

    @property
    def longest(self) -> int:
        """The configured length of rotary embeddings."""
        return self.max_position_embeddings

    def check(self) -> None:
        """Check the heads."""
        must_divide(self.num_attention_heads, "num_attention_heads", self.hidden_size, "hidden_size")

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        heads, table = self.num_attention_heads, self.vocab_size * self.hidden_size
        block = Block(
            hidden=self.hidden_size,
            heads=heads,
            key_value_heads=heads,
            head_size=self.hidden_size // heads,
            inner=self.intermediate_size,
            causal=True,
            joint_qkv=True,
            rotary=True,
            qkv_bias=self.attention_bias,
            projection_bias=self.attention_bias,
        )
        parts = {
            "attn": attention_half(block, batch),
            "mlp": mlp_half(block, batch),
            "block": parallel_block(block, batch, norms=2),
        }
        layers = self.num_hidden_layers
        return causal_chain(
            block,
            batch,
            embedding=(token_embedding(batch, self.vocab_size, self.hidden_size),),
            parts=parts,
            blocks=[(("", "block"),)] * layers if self.use_parallel_residual else uniform_halves(layers),
            head=causal_head(self.task, block, batch, vocabulary=self.vocab_size, labels=self.num_labels),
            tied=table if self.tie_word_embeddings and self.task == "language model" else 0,
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [
            attention_note(causal=True),
            "Rotary embeddings are a fused kernel over whole heads.",
            tie_note(TABLE_NAMES, tied=self.tie_word_embeddings),
        ]
