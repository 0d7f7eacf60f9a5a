"""What Llama and its successors share: RMSNorm, rotary embeddings, gated MLPs, grouped queries."""

from penstock.profile.analytic.architectures.model_config import (
    ROTARY_NOTE,
    TABLE_NAMES,
    Layers,
    ModelConfig,
    Size,
    attention_note,
    check_heads,
    tie_note,
    window_note,
)
from penstock.profile.analytic.blocks import (
    Block,
    Half,
    attention_half,
    causal_chain,
    causal_head,
    mlp_half,
    token_embedding,
    windowed_halves,
)
from penstock.profile.analytic.model_parts import Batch, Design, Part
from penstock.profile.analytic.operations import Operation


class LlamaLike(ModelConfig, frozen=True, kw_only=True):
    """The keys that these families share. Each family states its own defaults and its own meaning of None."""

    vocab_size: Size = 32000
    hidden_size: Size = 4096
    intermediate_size: Size = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Size = 32
    num_key_value_heads: Size | None = None
    """None: num_attention_heads."""
    head_dim: Size | None = None
    """None: hidden_size / num_attention_heads."""
    max_position_embeddings: Size = 2048
    tie_word_embeddings: bool = False
    num_labels: Size = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks and hidden size."""
        return self.num_hidden_layers, self.hidden_size

    @property
    def longest(self) -> int:
        """The configured length of rotary embeddings."""
        return self.max_position_embeddings

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        """Width of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def window(self) -> int | None:
        """The sliding window of the layers that have one."""
        return None

    def windowed(self) -> list[bool]:
        """Return which blocks have the sliding window."""
        return [self.window is not None] * self.num_hidden_layers

    def check(self) -> None:
        """Check the heads and the layer types."""
        check_heads(self.hidden_size, self.num_attention_heads, self.key_value_heads, self.head_dim)
        self.windowed()

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [
            attention_note(causal=True),
            ROTARY_NOTE,
            tie_note(TABLE_NAMES, tied=self.tie_word_embeddings),
            *window_note(self.window, self.windowed()),
        ]


def llama_like_block(config: LlamaLike, *, qkv_bias: bool = False, projection_bias: bool = False) -> Block:
    """Return the block of a family, before its own variants."""
    return Block(
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        key_value_heads=config.key_value_heads,
        head_size=config.head_size,
        inner=config.intermediate_size,
        causal=True,
        joint_qkv=False,
        norm_kind="rms",
        rotary=True,
        gated=True,
        activation="silu",
        qkv_bias=qkv_bias,
        projection_bias=projection_bias,
        mlp_bias=False,
    )


def llama_like_design(
    config: LlamaLike,
    block: Block,
    batch: Batch,
    *,
    embedding: tuple[Operation, ...] = (),
    other_parts: dict[str, Part] | None = None,
    blocks: list[tuple[Half, ...]] | None = None,
    capped: bool = False,
) -> Design:
    """Return the design of a family.

    Args:
        config: The configuration.
        block: The block.
        batch: The dimensions of the micro-batch.
        embedding: Operations after the lookup.
        other_parts: Further parts, which replace those of the same key.
        blocks: The layers of every block (default: attention, with or without window, and MLP).
        capped: The logits pass through a soft cap.
    """
    parts = {
        "attn": attention_half(block, batch),
        "attn.window": attention_half(block, batch, window=config.window),
        "mlp": mlp_half(block, batch),
        **(other_parts or {}),
    }
    head = causal_head(config.task, block, batch, vocabulary=config.vocab_size, labels=config.num_labels, capped=capped)
    is_tied = config.tie_word_embeddings and config.task == "language model"
    return causal_chain(
        block,
        batch,
        embedding=(token_embedding(batch, config.vocab_size, config.hidden_size), *embedding),
        parts=parts,
        blocks=windowed_halves(config.windowed()) if blocks is None else blocks,
        head=head,
        tied=config.vocab_size * config.hidden_size if is_tied else 0,
    )
