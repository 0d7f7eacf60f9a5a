"""T5: relative positions as a bias of the scores, RMSNorm, no biases, gated MLP since version 1.1."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.encoder_decoders.chain import (
    OUTPUT_NOTE,
    encoder_decoder_chain,
    later_lookup,
)
from penstock.profile.analytic.architectures.model_config import (
    ConfigError,
    Layers,
    ModelConfig,
    Size,
    attention_note,
)
from penstock.profile.analytic.blocks import (
    Block,
    Half,
    Task,
    attention_half,
    causal_head,
    cross_attention_half,
    mlp_half,
    token_embedding,
)
from penstock.profile.analytic.model_parts import Batch, Design, Part
from penstock.profile.analytic.operations import ID_BYTES, Kernel, Operation, accumulate

BIAS_NOTE = (
    "The bias of relative positions is computed in the first block of each stack, passes through the cuts after it, "
    "and is counted as saved in every self-attention."
)


class T5Config(ModelConfig, frozen=True, kw_only=True):
    """T5, T5 v1.1 and FLAN-T5."""

    vocab_size: Size = 32128
    d_model: Size = 512
    d_kv: Size = 64
    d_ff: Size = 2048
    num_layers: Layers = 6
    num_decoder_layers: Layers | None = None
    """None: num_layers."""
    num_heads: Size = 8
    relative_attention_num_buckets: Size = 32
    feed_forward_proj: str = "relu"
    is_gated_act: bool | None = None
    """None: as `feed_forward_proj` says. Otherwise it takes precedence, as in transformers."""
    n_positions: Size = 512
    """Only the default for the length of a row: relative positions have no limit."""

    CLASSES: ClassVar[dict[str, Task]] = {"T5ForConditionalGeneration": "language model"}
    ALIASES: ClassVar = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }
    REQUIRED: ClassVar = {"is_encoder_decoder": (True,), "is_decoder": (False,)}

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks of both stacks, and hidden size."""
        return self.num_layers + (self.num_decoder_layers or self.num_layers), self.d_model

    @property
    def longest(self) -> int:
        """The length of a row in training."""
        return self.n_positions

    def check(self) -> None:
        """Check the form of the activation."""
        words = self.feed_forward_proj.split("-")
        if len(words) > 2 or (len(words) == 2 and words[0] != "gated"):
            what = f"must be an activation such as relu, or gated-gelu, not {self.feed_forward_proj[:60]!r}"
            raise ConfigError("feed_forward_proj", what)

    def design(self, batch: Batch) -> Design:
        """Return the layers. Rows of the encoder and of the decoder have the same length."""
        encoder, decoder = self._block(causal=False), self._block(causal=True)
        stream_bytes, id_bytes = encoder.stream_bytes(batch), batch.tokens * ID_BYTES
        table = token_embedding(batch, self.vocab_size, self.d_model)
        norm = encoder.norm("norm", batch)
        head = causal_head("language model", decoder, batch, vocabulary=self.vocab_size, labels=1)
        parts = {
            "encoder.embedding": Part(operations=(table,), cut_bytes=stream_bytes + id_bytes, takes_data=True),
            "encoder.norm": Part(operations=(norm,), cut_bytes=stream_bytes + id_bytes),
            "decoder.embedding": Part(operations=(later_lookup(table, stream_bytes),), cut_bytes=2 * stream_bytes),
            "head": Part(operations=head, cut_bytes=0),
        }
        encoder_blocks = self._stack(parts, "encoder", self.num_layers, encoder, batch, id_bytes)
        layers = self.num_decoder_layers or self.num_layers
        decoder_blocks = self._stack(parts, "decoder", layers, decoder, batch, stream_bytes)
        return encoder_decoder_chain(
            parts,
            encoder=encoder_blocks,
            decoder=decoder_blocks,
            input_bytes=2 * id_bytes,
            tied=self.vocab_size * self.d_model,
            tied_layers=("encoder.embedding", "decoder.embedding", "head"),
        )

    def _block(self, *, causal: bool) -> Block:
        is_gated = self.feed_forward_proj.startswith("gated-") if self.is_gated_act is None else self.is_gated_act
        return Block(
            hidden=self.d_model,
            heads=self.num_heads,
            key_value_heads=self.num_heads,
            head_size=self.d_kv,
            inner=self.d_ff,
            causal=causal,
            joint_qkv=False,
            norm_kind="rms",
            gated=is_gated,
            activation=self.feed_forward_proj.removeprefix("gated-"),
            qkv_bias=False,
            projection_bias=False,
            mlp_bias=False,
            score_bias=True,
        )

    def _stack(
        self, parts: dict[str, Part], side: str, layers: int, block: Block, batch: Batch, alive_bytes: int
    ) -> list[tuple[Half, ...]]:
        """Add the parts of a stack, and return the layers of its blocks.

        The first block computes the bias of the scores. It is alive up to the attention of the last block.
        """
        bias_bytes = self.num_heads * batch.sequence**2 * batch.element_bytes
        blocks: list[tuple[Half, ...]] = []
        for number in range(layers):
            is_first, is_last = number == 0, number == layers - 1
            ending = ".last" if is_last else ""
            alive = alive_bytes + (0 if is_last else bias_bytes)
            keys = {"attn": f"{side}.attn{'.first' if is_first else ''}{ending}"}
            if keys["attn"] not in parts:
                part = attention_half(block, batch, extra_cut_bytes=alive)
                parts[keys["attn"]] = self._with_bias_table(part, batch) if is_first else part
            if side == "decoder":
                keys["cross"] = f"{side}.cross{ending}"
            keys["mlp"] = f"{side}.mlp{ending}"
            if keys["mlp"] not in parts:
                parts[keys["mlp"]] = mlp_half(block, batch, extra_cut_bytes=alive)
                if side == "decoder":
                    parts[keys["cross"]] = cross_attention_half(
                        block, batch, source=batch.sequence, source_hidden=self.d_model, extra_cut_bytes=alive
                    )
            blocks.append(tuple(keys.items()))
        return blocks

    def _with_bias_table(self, part: Part, batch: Batch) -> Part:
        count, pairs = self.relative_attention_num_buckets * self.num_heads, batch.sequence**2
        bias_bytes = pairs * self.num_heads * batch.element_bytes
        table = Operation(
            name="relative positions",
            parameters=count,
            # The bucket of every pair is an id; the bias is looked up, and its gradient summed over pairs.
            forward=(Kernel(pairs * ID_BYTES), Kernel(2 * bias_bytes + pairs * ID_BYTES)),
            weight_grad=(Kernel(bias_bytes + pairs * ID_BYTES), accumulate(count, batch.element_bytes)),
            saved_bytes=pairs * ID_BYTES,
            pending_bytes=pairs * ID_BYTES + bias_bytes,
        )
        return msgspec.structs.replace(part, operations=(table, *part.operations))

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [
            attention_note(causal=False).removesuffix(".") + "; the causal mask halves its arithmetic in the decoder.",
            "Rows of the encoder and of the decoder have the same length; ids of the decoder pass through the encoder.",
            BIAS_NOTE,
            OUTPUT_NOTE,
            "The token embeddings of encoder and decoder and the head share one table, as in transformers 5.",
        ]
