"""CLIP: an image tower and a text tower, with a contrastive loss over the rows of a micro-batch."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.encoders.vit import check_patches
from penstock.profile.analytic.architectures.model_config import (
    Layers,
    ModelConfig,
    Pixels,
    Size,
    attention_note,
    must_divide,
)
from penstock.profile.analytic.blocks import (
    Block,
    Task,
    attention_half,
    class_token,
    first_token,
    mlp_half,
    patches,
    stack,
    token_embedding,
    uniform_halves,
)
from penstock.profile.analytic.convolution import tensor_bytes
from penstock.profile.analytic.model_parts import Batch, Design, Layer, Part
from penstock.profile.analytic.operations import (
    ID_BYTES,
    Kernel,
    Operation,
    accumulate,
    cross_entropy,
    layer_norm,
    linear,
    pointwise,
    position_table,
)


class ClipText(msgspec.Struct, frozen=True, kw_only=True):
    """The text tower."""

    vocab_size: Size = 49408
    hidden_size: Size = 512
    intermediate_size: Size = 2048
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 8
    max_position_embeddings: Size = 77


class ClipVision(msgspec.Struct, frozen=True, kw_only=True):
    """The image tower."""

    hidden_size: Size = 768
    intermediate_size: Size = 3072
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 12
    num_channels: Pixels = 3
    image_size: Pixels = 224
    patch_size: Pixels = 32


class ClipConfig(ModelConfig, frozen=True, kw_only=True):
    """CLIP with both towers."""

    text_config: ClipText | None = None
    vision_config: ClipVision | None = None
    text_config_dict: ClipText | None = None
    """Replaces text_config, as in transformers."""
    vision_config_dict: ClipVision | None = None
    projection_dim: Size = 512

    CLASSES: ClassVar[dict[str, Task]] = {"CLIPModel": "pre-training"}
    LEARNED_POSITIONS: ClassVar = True

    @property
    def text(self) -> ClipText:
        """The text tower."""
        return self.text_config_dict or self.text_config or ClipText()

    @property
    def vision(self) -> ClipVision:
        """The image tower."""
        return self.vision_config_dict or self.vision_config or ClipVision()

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks of both towers, and hidden size of the text tower."""
        return self.text.num_hidden_layers + self.vision.num_hidden_layers, self.text.hidden_size

    @property
    def longest(self) -> int:
        """The learned positions of the text tower."""
        return self.text.max_position_embeddings

    def check(self) -> None:
        """Check the heads and the patches."""
        for name, tower in (("text_config", self.text), ("vision_config", self.vision)):
            heads, key = tower.num_attention_heads, f"{name}.num_attention_heads"
            must_divide(heads, key, tower.hidden_size, f"{name}.hidden_size")
        check_patches(self.vision.patch_size, self.vision.image_size, "vision_config.patch_size")

    def design(self, batch: Batch) -> Design:
        """Return the layers: the image tower, then the text tower and the loss.

        The ids of the text are alive in the image tower, the projected image in the text tower.
        """
        text, vision, size, rows = self.text, self.vision, batch.element_bytes, batch.micro_batch_size
        id_bytes, projected_bytes = batch.tokens * ID_BYTES, rows * self.projection_dim * size
        image_tokens = (vision.image_size // vision.patch_size) ** 2 + 1
        image_batch = Batch(micro_batch_size=rows, sequence=image_tokens, recipe=batch.recipe)
        image_block, text_block = _block(vision, causal=False), _block(text, causal=True)
        parts = {
            "vision.embedding": self._image_embedding(image_block, image_batch, id_bytes),
            "vision.attn": attention_half(image_block, image_batch, extra_cut_bytes=id_bytes),
            "vision.mlp": mlp_half(image_block, image_batch, extra_cut_bytes=id_bytes),
            "vision.head": self._image_head(image_block, image_batch, id_bytes),
            "text.embedding": self._text_embedding(text_block, batch, projected_bytes),
            "text.attn": attention_half(text_block, batch, extra_cut_bytes=projected_bytes),
            "text.mlp": mlp_half(text_block, batch, extra_cut_bytes=projected_bytes),
            "head": self._text_head(text_block, batch),
        }
        chain = [
            Layer(name="vision.embedding", part="vision.embedding"),
            *_tower("vision", vision.num_hidden_layers),
            Layer(name="vision.head", part="vision.head"),
            Layer(name="text.embedding", part="text.embedding"),
            *_tower("text", text.num_hidden_layers),
            Layer(name="head", part="head"),
        ]
        image_bytes = tensor_bytes(rows, vision.num_channels, vision.image_size, size)
        return Design(parts=parts, chain=tuple(chain), input_bytes=image_bytes + id_bytes)

    def _image_embedding(self, block: Block, batch: Batch, id_bytes: int) -> Part:
        vision, size = self.vision, batch.element_bytes
        stream_bytes, tokens = block.stream_bytes(batch), batch.sequence
        return Part(
            operations=(
                patches(
                    batch,
                    vision.num_channels,
                    block.hidden,
                    image_size=vision.image_size,
                    patch_size=vision.patch_size,
                    bias=False,
                ),
                class_token(stream_bytes, block.hidden, element_bytes=size),
                position_table("positions", batch.micro_batch_size, tokens, tokens, block.hidden, element_bytes=size),
                block.norm("norm", batch),
            ),
            cut_bytes=stream_bytes + id_bytes,
            takes_data=True,
        )

    def _image_head(self, block: Block, batch: Batch, id_bytes: int) -> Part:
        rows, size = batch.micro_batch_size, batch.element_bytes
        return Part(
            operations=(
                first_token(block.stream_bytes(batch)),
                layer_norm("norm", rows, block.hidden, element_bytes=size),
                linear("projection", rows, block.hidden, self.projection_dim, bias=False, element_bytes=size),
            ),
            cut_bytes=rows * self.projection_dim * size + id_bytes,
        )

    def _text_embedding(self, block: Block, batch: Batch, projected_bytes: int) -> Part:
        text, size, stream_bytes = self.text, batch.element_bytes, block.stream_bytes(batch)
        table = token_embedding(batch, text.vocab_size, block.hidden)
        return Part(
            operations=(
                msgspec.structs.replace(table, pending_bytes=table.pending_bytes + stream_bytes),
                position_table(
                    "positions",
                    batch.micro_batch_size,
                    batch.sequence,
                    text.max_position_embeddings,
                    block.hidden,
                    element_bytes=size,
                ),
            ),
            cut_bytes=stream_bytes + projected_bytes,
        )

    def _text_head(self, block: Block, batch: Batch) -> Part:
        rows, width, size = batch.micro_batch_size, self.projection_dim, batch.element_bytes
        return Part(
            operations=(
                block.norm("norm", batch),
                # The last token of every text, which is its end.
                first_token(block.stream_bytes(batch)),
                linear("projection", rows, block.hidden, width, bias=False, element_bytes=size, keeps_input=False),
                pointwise("unit length", 2 * rows * width * size, forward=(1, 2), input_grad=(3,), saved=1),
                _similarity(rows, width, element_bytes=size),
                cross_entropy("image loss", rows, rows, element_bytes=size),
                cross_entropy("text loss", rows, rows, element_bytes=size),
            ),
            cut_bytes=0,
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [
            attention_note(causal=False).removesuffix(".") + "; in the text tower the mask is causal.",
            "The image tower is before the text tower; the first layer has no input gradient.",
            "The contrastive loss compares the rows of one micro-batch.",
        ]


def _block(tower: ClipText | ClipVision, *, causal: bool) -> Block:
    return Block(
        hidden=tower.hidden_size,
        heads=tower.num_attention_heads,
        key_value_heads=tower.num_attention_heads,
        head_size=tower.hidden_size // tower.num_attention_heads,
        inner=tower.intermediate_size,
        causal=causal,
        joint_qkv=False,
    )


def _tower(name: str, blocks: int) -> list[Layer]:
    return [
        Layer(name=layer.name, part=f"{name}.{layer.part}") for layer in stack(f"{name}.block", uniform_halves(blocks))
    ]


def _similarity(rows: int, width: int, *, element_bytes: int) -> Operation:
    """All texts times all images, times the scale, which is a parameter."""
    one = Kernel((2 * rows * width + rows * rows) * element_bytes, 2 * rows * rows * width)
    return Operation(
        name="similarity",
        parameters=1,
        forward=(one,),
        input_grad=(one, one),
        weight_grad=(Kernel(2 * rows * rows * element_bytes), accumulate(1, element_bytes)),
        saved_bytes=(2 * rows * width + rows * rows) * element_bytes,
        pending_bytes=2 * rows * rows * element_bytes,
    )
