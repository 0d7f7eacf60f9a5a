"""BERT: learned positions, post-LayerNorm, and the heads of its pre-training or of classifiers."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.model_config import (
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
    classifier,
    first_token,
    mlp_half,
    token_embedding,
    uniform_halves,
)
from penstock.profile.analytic.model_parts import Batch, Design
from penstock.profile.analytic.operations import (
    ID_BYTES,
    Operation,
    activation,
    layer_norm,
    linear,
    lookup,
    pointwise,
    position_table,
)


class BertConfig(ModelConfig, frozen=True, kw_only=True):
    """BERT, by default with both heads of its pre-training: masked words and next sentence."""

    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    tie_word_embeddings: bool = True
    num_labels: Size = 2

    CLASSES: ClassVar[dict[str, Task]] = {
        "BertForPreTraining": "pre-training",
        "BertForMaskedLM": "language model",
        "BertForSequenceClassification": "row classes",
        "BertForTokenClassification": "token classes",
    }
    REQUIRED: ClassVar = {"is_decoder": (False,), "add_cross_attention": (False,)}
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
    def predicts_words(self) -> bool:
        """Whether the model has the head for masked words."""
        return self.task in ("pre-training", "language model")

    def check(self) -> None:
        """Check the heads."""
        must_divide(self.num_attention_heads, "num_attention_heads", self.hidden_size, "hidden_size")

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        hidden, size = self.hidden_size, batch.element_bytes
        block = Block(
            hidden=hidden,
            heads=self.num_attention_heads,
            key_value_heads=self.num_attention_heads,
            head_size=hidden // self.num_attention_heads,
            inner=self.intermediate_size,
            causal=False,
            joint_qkv=False,
        )
        embedding = (
            token_embedding(batch, self.vocab_size, hidden),
            lookup("types", batch.tokens, self.type_vocab_size, hidden, element_bytes=size),
            pointwise("sum", block.stream_bytes(batch), forward=(3,), input_grad=()),
            position_table(
                "positions",
                batch.micro_batch_size,
                batch.sequence,
                self.max_position_embeddings,
                hidden,
                element_bytes=size,
            ),
            layer_norm("norm", batch.tokens, hidden, element_bytes=size),
        )
        is_tied = self.tie_word_embeddings and self.predicts_words
        return causal_chain(
            block,
            batch,
            embedding=embedding,
            parts={"attn": attention_half(block, batch), "mlp": mlp_half(block, batch)},
            blocks=uniform_halves(self.num_hidden_layers),
            head=self._head(block.stream_bytes(batch), batch),
            # Two ids for every token: its word and its sentence.
            input_bytes=2 * batch.tokens * ID_BYTES,
            tied=self.vocab_size * hidden if is_tied else 0,
        )

    def _head(self, stream_bytes: int, batch: Batch) -> tuple[Operation, ...]:
        hidden, rows = self.hidden_size, batch.micro_batch_size
        if self.task == "token classes":
            return classifier("classifier", batch.tokens, hidden, self.num_labels, batch, bias=True)
        if self.task == "row classes":
            classes = classifier("classifier", rows, hidden, self.num_labels, batch, bias=True)
            return (first_token(stream_bytes), *self._pooler(batch), *classes)
        if self.task == "language model":
            return self._masked_words(stream_bytes, batch)
        return (
            # The pooler's input is the first token of the stream that "transform" saves; the next product saves the
            # output of tanh.
            *self._pooler(batch),
            *classifier("next sentence", rows, hidden, 2, batch, bias=True),
            # The pooler's gradient is scattered into a zeroed stream and added to the gradient of the other head.
            pointwise("fork", stream_bytes, forward=(), input_grad=(1, 3)),
            *self._masked_words(stream_bytes, batch),
        )

    def _pooler(self, batch: Batch) -> tuple[Operation, ...]:
        rows, hidden, size = batch.micro_batch_size, self.hidden_size, batch.element_bytes
        return (
            linear("pooler", rows, hidden, hidden, bias=True, element_bytes=size, keeps_input=False),
            pointwise("tanh", rows * hidden * size, forward=(2,), input_grad=(3,)),
        )

    def _masked_words(self, stream_bytes: int, batch: Batch) -> tuple[Operation, ...]:
        hidden, size = self.hidden_size, batch.element_bytes
        product, loss = classifier("masked words", batch.tokens, hidden, self.vocab_size, batch, bias=True)
        if not self.tie_word_embeddings:
            # The bias of the decoder and the bias of the head are one parameter only if the tables are tied. Without
            # ties, the second is unused.
            product = msgspec.structs.replace(product, parameters=product.parameters + self.vocab_size)
        return (
            linear("transform", batch.tokens, hidden, hidden, bias=True, element_bytes=size),
            activation("gelu", stream_bytes),
            layer_norm("norm", batch.tokens, hidden, element_bytes=size),
            product,
            loss,
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        if not self.predicts_words:
            return [attention_note(causal=False)]
        heads = (
            "BERT includes pooler, next-sentence head and masked-word head; the loss covers every token."
            if self.task == "pre-training"
            else "BERT includes the masked-word head; the loss covers every token."
        )
        tables = "word embedding and masked-word decoder"
        return [attention_note(causal=False), heads, tie_note(tables, tied=self.tie_word_embeddings)]
