"""gpt-oss: experts with biases, alternating sliding windows, attention sinks."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.decoders import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.model_config import (
    Layers,
    Size,
    causal_classes,
    experts_note,
    sliding_layers,
)
from penstock.profile.analytic.architectures.routing import check_routing
from penstock.profile.analytic.blocks import Experts, experts_half
from penstock.profile.analytic.model_parts import Batch, Design


class GptOssConfig(LlamaLike, frozen=True, kw_only=True):
    """gpt-oss 20b and 120b."""

    vocab_size: Size = 201_088
    hidden_size: Size = 2880
    intermediate_size: Size = 2880
    num_hidden_layers: Layers = 36
    num_attention_heads: Size = 64
    num_key_value_heads: Size | None = 8
    head_dim: Size | None = 64
    max_position_embeddings: Size = 131_072
    attention_bias: bool = True
    sliding_window: Size | None = 128
    layer_types: tuple[str, ...] | None = None
    num_experts_per_tok: Size = 4
    num_local_experts: Size = 128

    CLASSES: ClassVar = causal_classes("GptOss")
    ALIASES: ClassVar = {"num_experts": "num_local_experts"}

    @property
    def window(self) -> int | None:
        """The sliding window."""
        return self.sliding_window

    def windowed(self) -> list[bool]:
        """Every second block, from the first."""
        layers = self.num_hidden_layers
        return sliding_layers(self.layer_types, layers, [layer % 2 == 0 for layer in range(layers)])

    def check(self) -> None:
        """Check the heads and the routing."""
        super().check()
        check_routing(self.num_experts_per_tok, self.num_local_experts)

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        block = llama_like_block(self, qkv_bias=self.attention_bias, projection_bias=self.attention_bias)
        block = msgspec.structs.replace(block, sinks=True)
        experts = Experts(
            count=self.num_local_experts,
            per_token=self.num_experts_per_tok,
            inner=self.intermediate_size,
            router_bias=True,
            bias=True,
        )
        return llama_like_design(self, block, batch, other_parts={"mlp": experts_half(block, experts, batch)})

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [*super().notes(), experts_note(self.num_experts_per_tok, self.num_local_experts)]
