"""Whisper: two convolutions over a spectrogram, an encoder, and a decoder with learned positions."""

from typing import ClassVar

from penstock.profile.analytic.architectures.encoder_decoders.chain import (
    OUTPUT_NOTE,
    encoder_decoder_chain,
    later_lookup,
)
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
    Half,
    Task,
    attention_half,
    causal_head,
    cross_attention_half,
    mlp_half,
    token_embedding,
    uniform_halves,
)
from penstock.profile.analytic.convolution import convolution_1d
from penstock.profile.analytic.model_parts import Batch, Design, Part
from penstock.profile.analytic.operations import ID_BYTES, activation, position_table

KERNEL = 3


class WhisperConfig(ModelConfig, frozen=True, kw_only=True):
    """Whisper."""

    vocab_size: Size = 51865
    num_mel_bins: Size = 80
    encoder_layers: Layers = 4
    encoder_attention_heads: Size = 6
    decoder_layers: Layers = 4
    decoder_attention_heads: Size = 6
    decoder_ffn_dim: Size = 1536
    encoder_ffn_dim: Size = 1536
    d_model: Size = 384
    max_source_positions: Size = 1500
    max_target_positions: Size = 448
    tie_word_embeddings: bool = True

    CLASSES: ClassVar[dict[str, Task]] = {"WhisperForConditionalGeneration": "language model"}
    ALIASES: ClassVar = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_key_value_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }
    REQUIRED: ClassVar = {"is_encoder_decoder": (True,)}
    LEARNED_POSITIONS: ClassVar = True

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks of both stacks, and hidden size."""
        return self.encoder_layers + self.decoder_layers, self.d_model

    @property
    def longest(self) -> int:
        """The learned positions of the decoder."""
        return self.max_target_positions

    def check(self) -> None:
        """Check the heads."""
        must_divide(self.encoder_attention_heads, "encoder_attention_heads", self.d_model, "d_model")
        must_divide(self.decoder_attention_heads, "decoder_attention_heads", self.d_model, "d_model")

    def design(self, batch: Batch) -> Design:
        """Return the layers. The encoder takes the longest spectrogram; a row of the decoder is `batch.sequence`."""
        rows, size, source = batch.micro_batch_size, batch.element_bytes, self.max_source_positions
        sound = Batch(micro_batch_size=rows, sequence=source, recipe=batch.recipe)
        encoder = self._block(self.encoder_attention_heads, self.encoder_ffn_dim, causal=False)
        decoder = self._block(self.decoder_attention_heads, self.decoder_ffn_dim, causal=True)
        sound_bytes, stream_bytes = encoder.stream_bytes(sound), decoder.stream_bytes(batch)
        id_bytes, table = batch.tokens * ID_BYTES, token_embedding(batch, self.vocab_size, self.d_model)
        positions = position_table(
            "positions", rows, batch.sequence, self.max_target_positions, self.d_model, element_bytes=size
        )
        parts = {
            "encoder.embedding": self._sound_embedding(sound, id_bytes),
            "attn": attention_half(encoder, sound, extra_cut_bytes=id_bytes),
            "mlp": mlp_half(encoder, sound, extra_cut_bytes=id_bytes),
            "encoder.norm": Part(operations=(encoder.norm("norm", sound),), cut_bytes=sound_bytes + id_bytes),
            "decoder.embedding": Part(
                operations=(later_lookup(table, stream_bytes), positions), cut_bytes=stream_bytes + sound_bytes
            ),
            "decoder.attn": attention_half(decoder, batch, extra_cut_bytes=sound_bytes),
            "decoder.cross": cross_attention_half(
                decoder, batch, source=source, source_hidden=self.d_model, extra_cut_bytes=sound_bytes
            ),
            "decoder.mlp": mlp_half(decoder, batch, extra_cut_bytes=sound_bytes),
            "head": Part(
                operations=causal_head("language model", decoder, batch, vocabulary=self.vocab_size, labels=1),
                cut_bytes=0,
            ),
        }
        decoder_block: tuple[Half, ...] = (("attn", "decoder.attn"), ("cross", "decoder.cross"), ("mlp", "decoder.mlp"))
        return encoder_decoder_chain(
            parts,
            encoder=uniform_halves(self.encoder_layers),
            decoder=[decoder_block] * self.decoder_layers,
            input_bytes=rows * 2 * source * self.num_mel_bins * size + id_bytes,
            tied=self.vocab_size * self.d_model if self.tie_word_embeddings else 0,
            tied_layers=("decoder.embedding", "head"),
        )

    def _block(self, heads: int, inner: int, *, causal: bool) -> Block:
        return Block(
            hidden=self.d_model,
            heads=heads,
            key_value_heads=heads,
            head_size=self.d_model // heads,
            inner=inner,
            causal=causal,
            joint_qkv=False,
            key_bias=False,
        )

    def _sound_embedding(self, sound: Batch, id_bytes: int) -> Part:
        rows, tokens, hidden, size = sound.micro_batch_size, sound.sequence, self.d_model, sound.element_bytes
        stream_bytes = sound.tokens * hidden * size
        # The second convolution halves the number of frames.
        return Part(
            operations=(
                convolution_1d(
                    "conv1",
                    rows,
                    (self.num_mel_bins, hidden),
                    KERNEL,
                    (2 * tokens, 2 * tokens),
                    element_bytes=size,
                    takes_data=True,
                ),
                activation("gelu", 2 * stream_bytes),
                convolution_1d("conv2", rows, (hidden, hidden), KERNEL, (2 * tokens, tokens), element_bytes=size),
                activation("gelu", stream_bytes),
                position_table("positions", rows, tokens, tokens, hidden, element_bytes=size),
            ),
            cut_bytes=stream_bytes + id_bytes,
            takes_data=True,
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        source = (
            f"The encoder takes {self.max_source_positions:,} positions; ids of the decoder pass through it. Its "
            "position table is constant, but counts as parameters."
        )
        return [
            attention_note(causal=False).removesuffix(".") + "; the causal mask halves its arithmetic in the decoder.",
            source,
            OUTPUT_NOTE,
            tie_note("token embedding and head", tied=self.tie_word_embeddings),
        ]
