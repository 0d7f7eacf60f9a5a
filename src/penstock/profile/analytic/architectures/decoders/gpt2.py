"""GPT-2: learned positions, pre-LayerNorm, GELU."""

from typing import ClassVar

from penstock.profile.analytic.architectures.model_config import (
    TABLE_NAMES,
    Layers,
    ModelConfig,
    Size,
    attention_note,
    must_divide,
    tie_note,
)
from penstock.profile.analytic.blocks import (
    Block,
    Task,
    attention_half,
    causal_chain,
    causal_head,
    mlp_half,
    token_embedding,
    uniform_halves,
)
from penstock.profile.analytic.model_parts import Batch, Design
from penstock.profile.analytic.operations import position_table


class Gpt2Config(ModelConfig, frozen=True, kw_only=True):
    """GPT-2."""

    vocab_size: Size = 50257
    n_positions: Size = 1024
    n_embd: Size = 768
    n_layer: Layers = 12
    n_head: Size = 12
    n_inner: Size | None = None
    """None: four times n_embd."""
    tie_word_embeddings: bool = True
    num_labels: Size = 2

    CLASSES: ClassVar[dict[str, Task]] = {
        "GPT2LMHeadModel": "language model",
        "GPT2ForSequenceClassification": "row classes",
        "GPT2ForTokenClassification": "token classes",
    }
    ALIASES: ClassVar = {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }
    REQUIRED: ClassVar = {"add_cross_attention": (False,)}
    LEARNED_POSITIONS: ClassVar = True
    TENSOR_PARALLEL: ClassVar = True

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks and hidden size."""
        return self.n_layer, self.n_embd

    @property
    def longest(self) -> int:
        """The learned positions."""
        return self.n_positions

    def check(self) -> None:
        """Check the heads."""
        must_divide(self.n_head, "n_head", self.n_embd, "n_embd")

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        hidden = self.n_embd
        block = Block(
            hidden=hidden,
            heads=self.n_head,
            key_value_heads=self.n_head,
            head_size=hidden // self.n_head,
            inner=self.n_inner or 4 * hidden,
            causal=True,
            joint_qkv=True,
        )
        positions = position_table(
            "positions",
            batch.micro_batch_size,
            batch.sequence,
            self.n_positions,
            hidden,
            element_bytes=batch.element_bytes,
        )
        is_tied = self.tie_word_embeddings and self.task == "language model"
        return causal_chain(
            block,
            batch,
            embedding=(token_embedding(batch, self.vocab_size, hidden), positions),
            parts={"attn": attention_half(block, batch), "mlp": mlp_half(block, batch)},
            blocks=uniform_halves(self.n_layer),
            head=causal_head(self.task, block, batch, vocabulary=self.vocab_size, labels=self.num_labels),
            tied=self.vocab_size * hidden if is_tied else 0,
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [attention_note(causal=True), tie_note(TABLE_NAMES, tied=self.tie_word_embeddings)]
