"""Mixtral: Mistral with experts in every block."""

from typing import ClassVar

from penstock.profile.analytic.architectures.decoders import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.model_config import Size, causal_classes, experts_note
from penstock.profile.analytic.architectures.routing import check_routing
from penstock.profile.analytic.blocks import Experts, experts_half
from penstock.profile.analytic.model_parts import Batch, Design


class MixtralConfig(LlamaLike, frozen=True, kw_only=True):
    """Mixtral 8x7B and 8x22B."""

    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    max_position_embeddings: Size = 131_072
    sliding_window: Size | None = None
    num_experts_per_tok: Size = 2
    num_local_experts: Size = 8

    CLASSES: ClassVar = causal_classes("Mixtral")
    ALIASES: ClassVar = {"num_experts": "num_local_experts"}

    @property
    def window(self) -> int | None:
        """The sliding window."""
        return self.sliding_window

    def check(self) -> None:
        """Check the heads and the routing."""
        super().check()
        check_routing(self.num_experts_per_tok, self.num_local_experts)

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        block = llama_like_block(self)
        experts = Experts(
            count=self.num_local_experts, per_token=self.num_experts_per_tok, inner=self.intermediate_size
        )
        return llama_like_design(self, block, batch, other_parts={"mlp": experts_half(block, experts, batch)})

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [*super().notes(), experts_note(self.num_experts_per_tok, self.num_local_experts)]
