"""OPT: learned positions, ReLU, norms before or after the halves, sometimes a narrow embedding."""

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
from penstock.profile.analytic.operations import Operation, linear, position_table

POSITION_OFFSET = 2
"""The table of positions has two rows that no token uses."""


class OptConfig(ModelConfig, frozen=True, kw_only=True):
    """OPT."""

    vocab_size: Size = 50272
    hidden_size: Size = 768
    num_hidden_layers: Layers = 12
    ffn_dim: Size = 3072
    num_attention_heads: Size = 12
    max_position_embeddings: Size = 2048
    do_layer_norm_before: bool = True
    word_embed_proj_dim: Size | None = None
    """None: hidden_size."""
    enable_bias: bool = True
    layer_norm_elementwise_affine: bool = True
    _remove_final_layer_norm: bool = False
    tie_word_embeddings: bool = True
    num_labels: Size = 2

    CLASSES: ClassVar = causal_classes("OPT", token_classes=False)
    LEARNED_POSITIONS: ClassVar = True

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks and hidden size."""
        return self.num_hidden_layers, self.hidden_size

    @property
    def longest(self) -> int:
        """The learned positions."""
        return self.max_position_embeddings

    @property
    def width(self) -> int:
        """Width of the token embedding."""
        return self.word_embed_proj_dim or self.hidden_size

    def check(self) -> None:
        """Check the heads."""
        must_divide(self.num_attention_heads, "num_attention_heads", self.hidden_size, "hidden_size")

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        hidden, heads, size = self.hidden_size, self.num_attention_heads, batch.element_bytes
        block = Block(
            hidden=hidden,
            heads=heads,
            key_value_heads=heads,
            head_size=hidden // heads,
            inner=self.ffn_dim,
            causal=True,
            joint_qkv=False,
            norm_kind="layer" if self.layer_norm_elementwise_affine else "layer without parameters",
            activation="relu",
            qkv_bias=self.enable_bias,
            projection_bias=self.enable_bias,
            mlp_bias=self.enable_bias,
        )
        positions = position_table(
            "positions",
            batch.micro_batch_size,
            batch.sequence,
            self.max_position_embeddings + POSITION_OFFSET,
            hidden,
            element_bytes=size,
        )
        is_narrow = self.width != hidden
        widen = (linear("project in", batch.tokens, self.width, hidden, bias=False, element_bytes=size),)
        is_tied = self.tie_word_embeddings and self.task == "language model"
        return causal_chain(
            block,
            batch,
            embedding=(
                token_embedding(batch, self.vocab_size, self.width),
                *(widen if is_narrow else ()),
                positions,
            ),
            parts={"attn": attention_half(block, batch), "mlp": mlp_half(block, batch)},
            blocks=uniform_halves(self.num_hidden_layers),
            head=self._head(block, batch),
            tied=self.vocab_size * self.width if is_tied else 0,
        )

    def _head(self, block: Block, batch: Batch) -> tuple[Operation, ...]:
        hidden, size = self.hidden_size, batch.element_bytes
        has_norm = self.do_layer_norm_before and not self._remove_final_layer_norm
        norm = (block.norm("norm", batch),) if has_norm else ()
        narrow = (linear("project out", batch.tokens, hidden, self.width, bias=False, element_bytes=size),)
        tail = Block(hidden=self.width, heads=1, key_value_heads=1, head_size=1, inner=1, causal=True, joint_qkv=False)
        return (
            *norm,
            *(narrow if self.width != hidden else ()),
            *causal_head(self.task, tail, batch, vocabulary=self.vocab_size, labels=self.num_labels, final_norm=False),
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [attention_note(causal=True), tie_note(TABLE_NAMES, tied=self.tie_word_embeddings)]
