"""Qwen3 with experts: in every block, except listed ones and those between sparse steps."""

from typing import ClassVar

import msgspec

from penstock.profile.analytic.architectures.decoders import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.model_config import Count, Layers, Size, causal_classes, experts_note
from penstock.profile.analytic.architectures.routing import check_routing
from penstock.profile.analytic.blocks import Experts, experts_half
from penstock.profile.analytic.model_parts import Batch, Design


class Qwen3MoeConfig(LlamaLike, frozen=True, kw_only=True):
    """Qwen3 30B-A3B and 235B-A22B."""

    vocab_size: Size = 151_936
    hidden_size: Size = 2048
    intermediate_size: Size = 6144
    num_hidden_layers: Layers = 24
    num_key_value_heads: Size = 4
    max_position_embeddings: Size = 32768
    attention_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: Size | None = 4096
    decoder_sparse_step: Size = 1
    moe_intermediate_size: Size = 768
    num_experts_per_tok: Size = 8
    num_experts: Count = 128
    mlp_only_layers: tuple[int, ...] | None = None

    CLASSES: ClassVar = causal_classes("Qwen3Moe")
    ALIASES: ClassVar = {"num_local_experts": "num_experts"}

    @property
    def window(self) -> int | None:
        """The sliding window, if it is used."""
        return self.sliding_window if self.use_sliding_window else None

    def has_experts(self, layer: int) -> bool:
        """Return whether a block has experts."""
        is_listed = layer in (self.mlp_only_layers or ())
        return self.num_experts > 0 and not is_listed and (layer + 1) % self.decoder_sparse_step == 0

    def check(self) -> None:
        """Check the heads and the routing."""
        super().check()
        if self.num_experts:
            check_routing(self.num_experts_per_tok, self.num_experts)

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        block = llama_like_block(self, qkv_bias=self.attention_bias, projection_bias=self.attention_bias)
        block = msgspec.structs.replace(block, query_key_norm=True)
        attention = "attn" if self.window is None else "attn.window"
        layers = range(self.num_hidden_layers)
        experts = Experts(count=self.num_experts, per_token=self.num_experts_per_tok, inner=self.moe_intermediate_size)
        return llama_like_design(
            self,
            block,
            batch,
            other_parts={"experts": experts_half(block, experts, batch)} if self.num_experts else {},
            blocks=[
                (("attn", attention), ("mlp", "experts" if self.has_experts(layer) else "mlp")) for layer in layers
            ],
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        note = [experts_note(self.num_experts_per_tok, self.num_experts)] if self.num_experts else []
        return [*super().notes(), *note]
