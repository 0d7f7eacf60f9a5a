"""Vision transformer with a class token and a linear head on it."""

from typing import ClassVar

from penstock.profile.analytic.architectures.model_config import (
    ConfigError,
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
    causal_chain,
    class_token,
    classifier,
    first_token,
    mlp_half,
    patches,
    uniform_halves,
)
from penstock.profile.analytic.convolution import tensor_bytes
from penstock.profile.analytic.model_parts import Batch, Design
from penstock.profile.analytic.operations import position_table


class VitConfig(ModelConfig, frozen=True, kw_only=True):
    """ViT."""

    hidden_size: Size = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    image_size: Pixels = 224
    patch_size: Pixels = 16
    num_channels: Pixels = 3
    num_labels: Size = 2
    qkv_bias: bool = True

    CLASSES: ClassVar[dict[str, Task]] = {"ViTForImageClassification": "images"}
    REQUIRED: ClassVar = {"head_dim": (None,)}
    TAKES_IMAGES: ClassVar = True

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks and hidden size."""
        return self.num_hidden_layers, self.hidden_size

    @property
    def longest(self) -> int:
        """The complete patches of an image and the class token.

        >>> VitConfig().longest
        197
        """
        return (self.image_size // self.patch_size) ** 2 + 1

    def check(self) -> None:
        """Check the heads and the patches."""
        must_divide(self.num_attention_heads, "num_attention_heads", self.hidden_size, "hidden_size")
        check_patches(self.patch_size, self.image_size, "patch_size")

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        hidden, size, rows = self.hidden_size, batch.element_bytes, batch.micro_batch_size
        block = Block(
            hidden=hidden,
            heads=self.num_attention_heads,
            key_value_heads=self.num_attention_heads,
            head_size=hidden // self.num_attention_heads,
            inner=self.intermediate_size,
            causal=False,
            joint_qkv=True,
            qkv_bias=self.qkv_bias,
        )
        stream_bytes = block.stream_bytes(batch)
        return causal_chain(
            block,
            batch,
            embedding=(
                patches(
                    batch,
                    self.num_channels,
                    hidden,
                    image_size=self.image_size,
                    patch_size=self.patch_size,
                    bias=True,
                ),
                class_token(stream_bytes, hidden, element_bytes=size),
                position_table("positions", rows, batch.sequence, batch.sequence, hidden, element_bytes=size),
            ),
            parts={"attn": attention_half(block, batch), "mlp": mlp_half(block, batch)},
            blocks=uniform_halves(self.num_hidden_layers),
            head=(
                block.norm("norm", batch),
                first_token(stream_bytes),
                *classifier("head", rows, hidden, self.num_labels, batch, bias=True, keeps_input=False),
            ),
            input_bytes=tensor_bytes(rows, self.num_channels, self.image_size, size),
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [attention_note(causal=False), "The first layer has no input gradient."]


def check_patches(patch_size: int, image_size: int, key: str) -> None:
    """Check that an image has a patch.

    Raises:
        ConfigError: It has none.
    """
    if patch_size > image_size:
        raise ConfigError(key, f"patch_size {patch_size:,} is larger than image_size {image_size:,}")
