"""Falcon: attention and MLP in parallel, one head or few heads of keys and values, rotary embeddings or ALiBi."""

from typing import ClassVar

from penstock.profile.analytic.architectures.model_config import (
    TABLE_NAMES,
    ConfigError,
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


class FalconConfig(ModelConfig, frozen=True, kw_only=True):
    """Falcon 7B, 40B, 180B and RW."""

    vocab_size: Size = 65024
    hidden_size: Size = 4544
    num_hidden_layers: Layers = 32
    num_attention_heads: Size = 71
    num_ln_in_parallel_attn: int | None = None
    num_kv_heads: Size | None = None
    """None: num_attention_heads. Only read with new_decoder_architecture."""
    alibi: bool = False
    new_decoder_architecture: bool = False
    multi_query: bool = True
    parallel_attn: bool = True
    bias: bool = False
    max_position_embeddings: Size = 2048
    ffn_hidden_size: Size | None = None
    """None: four times hidden_size."""
    tie_word_embeddings: bool = True
    num_labels: Size = 2

    CLASSES: ClassVar = causal_classes("Falcon")
    ALIASES: ClassVar = {"n_embed": "hidden_size"}
    REQUIRED: ClassVar = {"n_layer": (None,), "n_head": (None,), "n_head_kv": (None,)}

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks and hidden size."""
        return self.num_hidden_layers, self.hidden_size

    @property
    def longest(self) -> int:
        """The configured length."""
        return self.max_position_embeddings

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values."""
        if self.new_decoder_architecture:
            return self.num_kv_heads or self.num_attention_heads
        return 1 if self.multi_query else self.num_attention_heads

    @property
    def norms(self) -> int:
        """Norms of a block with a parallel residual."""
        if self.num_ln_in_parallel_attn is None:
            return 2 if self.new_decoder_architecture else 1
        return 2 if self.num_ln_in_parallel_attn == 2 else 1

    def check(self) -> None:
        """Check the heads, and combinations of keys for which the model cannot run."""
        must_divide(self.num_attention_heads, "num_attention_heads", self.hidden_size, "hidden_size")
        must_divide(self.key_value_heads, "num_kv_heads", self.num_attention_heads, "num_attention_heads")
        if self.new_decoder_architecture and not self.parallel_attn:
            raise ConfigError("parallel_attn", "must be true with new_decoder_architecture")
        if self.num_ln_in_parallel_attn not in (None, 1, 2):
            raise ConfigError("num_ln_in_parallel_attn", f"must be 1 or 2, not {self.num_ln_in_parallel_attn}")
        if self.norms == 2 and not self.new_decoder_architecture:
            raise ConfigError("num_ln_in_parallel_attn", "2 norms need new_decoder_architecture")

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        heads, hidden = self.num_attention_heads, self.hidden_size
        block = Block(
            hidden=hidden,
            heads=heads,
            key_value_heads=self.key_value_heads,
            head_size=hidden // heads,
            inner=self.ffn_hidden_size or 4 * hidden,
            causal=True,
            joint_qkv=True,
            rotary=not self.alibi,
            qkv_bias=self.bias,
            projection_bias=self.bias,
            mlp_bias=self.bias,
        )
        parts = {
            "attn": attention_half(block, batch),
            "mlp": mlp_half(block, batch),
            "block": parallel_block(block, batch, norms=self.norms),
        }
        layers = self.num_hidden_layers
        is_tied = self.tie_word_embeddings and self.task == "language model"
        return causal_chain(
            block,
            batch,
            embedding=(token_embedding(batch, self.vocab_size, hidden),),
            parts=parts,
            blocks=[(("", "block"),)] * layers if self.parallel_attn else uniform_halves(layers),
            head=causal_head(self.task, block, batch, vocabulary=self.vocab_size, labels=self.num_labels),
            tied=self.vocab_size * hidden if is_tied else 0,
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        positions = "ALiBi is computed inside the attention kernel." if self.alibi else "Rotary embeddings are fused."
        return [attention_note(causal=True), positions, tie_note(TABLE_NAMES, tied=self.tie_word_embeddings)]
