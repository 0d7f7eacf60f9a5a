"""DeepSeek-V3: latent attention, routed and shared experts after a few dense blocks."""

from typing import ClassVar

from penstock.profile.analytic.architectures.decoders import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.model_config import (
    ConfigError,
    Count,
    Layers,
    Size,
    causal_classes,
    experts_note,
)
from penstock.profile.analytic.architectures.routing import check_routing
from penstock.profile.analytic.blocks import Experts, LatentAttention, experts_half, latent_attention_half
from penstock.profile.analytic.model_parts import Batch, Design


class DeepseekV3Config(LlamaLike, frozen=True, kw_only=True):
    """DeepSeek-V3 and R1."""

    vocab_size: Size = 129_280
    hidden_size: Size = 7168
    intermediate_size: Size = 18432
    moe_intermediate_size: Size = 2048
    num_hidden_layers: Layers = 61
    num_attention_heads: Size = 128
    num_key_value_heads: Size | None = 128
    n_shared_experts: Count = 1
    n_routed_experts: Size = 256
    num_experts_per_tok: Size = 8
    first_k_dense_replace: Count = 3
    kv_lora_rank: Size = 512
    q_lora_rank: Size | None = 1536
    """None: queries are projected directly."""
    qk_rope_head_dim: Size = 64
    qk_nope_head_dim: Size = 128
    v_head_dim: Size = 128
    max_position_embeddings: Size = 4096
    attention_bias: bool = False

    CLASSES: ClassVar = causal_classes("DeepseekV3")
    ALIASES: ClassVar = {"num_local_experts": "n_routed_experts"}
    REQUIRED: ClassVar = {"moe_layer_freq": (1,)}

    def check(self) -> None:
        """Check the heads and the routing."""
        if self.key_value_heads != self.num_attention_heads:
            what = f"must equal num_attention_heads ({self.num_attention_heads:,}), not {self.key_value_heads:,}"
            raise ConfigError("num_key_value_heads", what)
        check_routing(self.num_experts_per_tok, self.n_routed_experts)

    def design(self, batch: Batch) -> Design:
        """Return the layers."""
        block = llama_like_block(self)
        latent = LatentAttention(
            heads=self.num_attention_heads,
            query_rank=self.q_lora_rank,
            key_value_rank=self.kv_lora_rank,
            plain_size=self.qk_nope_head_dim,
            rotary_size=self.qk_rope_head_dim,
            value_size=self.v_head_dim,
            bias=self.attention_bias,
        )
        experts = Experts(
            count=self.n_routed_experts,
            per_token=self.num_experts_per_tok,
            inner=self.moe_intermediate_size,
            shared_inner=self.moe_intermediate_size * self.n_shared_experts,
        )
        dense = self.first_k_dense_replace
        return llama_like_design(
            self,
            block,
            batch,
            other_parts={
                "attn": latent_attention_half(block, latent, batch),
                "experts": experts_half(block, experts, batch),
            },
            blocks=[
                (("attn", "attn"), ("mlp", "mlp" if layer < dense else "experts"))
                for layer in range(self.num_hidden_layers)
            ],
        )

    def notes(self) -> list[str]:
        """Return the assumptions of the family."""
        return [
            *super().notes(),
            "The modules that predict further tokens (num_nextn_predict_layers) are not counted, as in transformers.",
            experts_note(self.num_experts_per_tok, self.n_routed_experts),
        ]
