"""Multi-head latent attention (DeepSeek): keys and values, and often queries, pass through a narrow projection."""

import msgspec

from penstock.profile.analytic.attention import attention
from penstock.profile.analytic.blocks.block import Block
from penstock.profile.analytic.blocks.halves import rotary
from penstock.profile.analytic.model_parts import Batch, Part
from penstock.profile.analytic.operations import Operation, linear, pointwise, residual, rms_norm


class LatentAttention(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of latent attention."""

    heads: int
    query_rank: int | None
    """None: queries are projected directly."""
    key_value_rank: int
    plain_size: int
    """Width of a query or key without rotary embeddings."""
    rotary_size: int
    """Width of its rotary part. All heads share the rotary part of the key."""
    value_size: int
    bias: bool


def latent_attention_half(block: Block, latent: LatentAttention, batch: Batch) -> Part:
    """Norm, narrow and wide projections, rotary embeddings, fused attention, projection, residual."""
    size, heads = batch.element_bytes, latent.heads
    head_size = latent.plain_size + latent.rotary_size
    narrow = latent.key_value_rank + latent.rotary_size
    return Part(
        operations=(
            block.norm("norm", batch),
            *_queries(block, latent, batch, heads * head_size),
            linear(
                "key value down",
                batch.tokens,
                block.hidden,
                narrow,
                bias=latent.bias,
                element_bytes=size,
                keeps_input=False,
            ),
            rms_norm("key value norm", batch.tokens, latent.key_value_rank, element_bytes=size),
            linear(
                "key value up",
                batch.tokens,
                latent.key_value_rank,
                heads * (latent.plain_size + latent.value_size),
                bias=False,
                element_bytes=size,
            ),
            rotary(batch, (heads + 1) * latent.rotary_size),
            # Queries and keys are put together from their two parts; the backward splits them.
            pointwise("parts", 2 * batch.tokens * heads * head_size * size, forward=(2,), input_grad=(2,)),
            attention(
                "attention",
                batch.micro_batch_size,
                batch.sequence,
                heads=heads,
                key_value_heads=heads,
                head_size=head_size,
                value_size=latent.value_size,
                causal=block.causal,
                element_bytes=size,
                eager=batch.is_eager,
            ),
            linear(
                "projection",
                batch.tokens,
                heads * latent.value_size,
                block.hidden,
                bias=latent.bias,
                element_bytes=size,
            ),
            residual("residual", block.stream_bytes(batch)),
        ),
        cut_bytes=block.stream_bytes(batch),
    )


def _queries(block: Block, latent: LatentAttention, batch: Batch, width: int) -> tuple[Operation, ...]:
    size = batch.element_bytes
    if latent.query_rank is None:
        return (linear("query", batch.tokens, block.hidden, width, bias=False, element_bytes=size),)
    rank = latent.query_rank
    return (
        linear("query down", batch.tokens, block.hidden, rank, bias=latent.bias, element_bytes=size),
        rms_norm("query norm", batch.tokens, rank, element_bytes=size),
        linear("query up", batch.tokens, rank, width, bias=False, element_bytes=size),
    )
