"""A transformer block as two layers: the attention half and the MLP half.

Only the residual stream is alive between the halves, so a pipeline can be cut there. Pre-norm (GPT-2, Llama, ViT) and
post-norm (BERT) have the same kernels and saved bytes, so one description covers both.
"""

import msgspec

from penstock.profile.analytic.model_parts import Batch, Part
from penstock.profile.analytic.operations import (
    Operation,
    activation,
    attention,
    layer_norm,
    linear,
    pointwise,
    product,
    residual,
    rms_norm,
)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes and variants of a family's blocks."""

    hidden: int
    heads: int
    key_value_heads: int
    head_size: int
    inner: int
    causal: bool
    joint_qkv: bool
    """One product for queries, keys and values, or three that share their input."""
    gated: bool = False
    """As in Llama: RMSNorm, rotary embeddings, SwiGLU. Otherwise LayerNorm and GELU."""
    qkv_bias: bool = True
    projection_bias: bool = True
    mlp_bias: bool = True

    def norm(self, name: str, batch: Batch) -> Operation:
        """Return the family's norm over the residual stream."""
        make = rms_norm if self.gated else layer_norm
        return make(name, batch.tokens, self.hidden, element_bytes=batch.element_bytes)

    def stream_bytes(self, batch: Batch) -> int:
        """Return the bytes of the residual stream."""
        return batch.tokens * self.hidden * batch.element_bytes


def attention_half(block: Block, batch: Batch) -> Part:
    """Norm, q, k and v, (rotary embeddings,) fused attention, projection, residual."""
    query, key_value = block.heads * block.head_size, block.key_value_heads * block.head_size
    return Part(
        operations=(
            block.norm("norm", batch),
            *_query_key_value(block, batch, query, key_value),
            *_rotary(block, batch, query + key_value),
            attention(
                "attention",
                batch.micro_batch_size,
                batch.sequence,
                heads=block.heads,
                key_value_heads=block.key_value_heads,
                head_size=block.head_size,
                causal=block.causal,
                element_bytes=batch.element_bytes,
            ),
            linear(
                "projection",
                batch.tokens,
                query,
                block.hidden,
                bias=block.projection_bias,
                element_bytes=batch.element_bytes,
            ),
            residual("residual", block.stream_bytes(batch)),
        ),
        cut_bytes=block.stream_bytes(batch),
    )


def mlp_half(block: Block, batch: Batch) -> Part:
    """Norm, up, activation (gated or not), down, residual."""
    size, inner_bytes = batch.element_bytes, batch.tokens * block.inner * batch.element_bytes

    def up(name: str, *, keeps_input: bool = True) -> Operation:
        return linear(
            name,
            batch.tokens,
            block.hidden,
            block.inner,
            bias=block.mlp_bias,
            element_bytes=size,
            keeps_input=keeps_input,
        )

    middle = (
        (up("gate"), up("up", keeps_input=False), activation("silu", inner_bytes), product("gated", inner_bytes))
        if block.gated
        else (up("up"), activation("gelu", inner_bytes))
    )
    return Part(
        operations=(
            block.norm("norm", batch),
            *middle,
            linear("down", batch.tokens, block.inner, block.hidden, bias=block.mlp_bias, element_bytes=size),
            residual("residual", block.stream_bytes(batch)),
        ),
        cut_bytes=block.stream_bytes(batch),
    )


def _query_key_value(block: Block, batch: Batch, query: int, key_value: int) -> tuple[Operation, ...]:
    def project(name: str, outputs: int, *, keeps_input: bool = True) -> Operation:
        return linear(
            name,
            batch.tokens,
            block.hidden,
            outputs,
            bias=block.qkv_bias,
            element_bytes=batch.element_bytes,
            keeps_input=keeps_input,
        )

    if block.joint_qkv:
        return (project("qkv", query + 2 * key_value),)
    return (
        project("query", query),
        project("key", key_value, keeps_input=False),
        project("value", key_value, keeps_input=False),
    )


def _rotary(block: Block, batch: Batch, width: int) -> tuple[Operation, ...]:
    # Rotating q and k needs the angles only; the backward rotates the gradients back. Attention saves the rotated q, k.
    if not block.gated:
        return ()
    return (pointwise("rotary", batch.tokens * width * batch.element_bytes, forward=(2,), input_grad=(2,)),)
