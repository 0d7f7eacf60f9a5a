"""A transformer block as two layers: the attention half and the MLP half.

Only the residual stream is alive between the halves, so a pipeline can be cut there. Pre-norm (GPT-2, Llama, ViT) and
post-norm (BERT) have the same kernels and saved bytes, so one description covers both. A block with a parallel residual
is one layer: both halves read the same stream. A decoder with an encoder has a third half between the two, its
cross-attention.
"""

import msgspec

from penstock.profile.analytic.attention import attention
from penstock.profile.analytic.blocks.block import Block
from penstock.profile.analytic.model_parts import Batch, Part
from penstock.profile.analytic.operations import (
    Operation,
    activation,
    linear,
    pointwise,
    product,
    residual,
    rms_norm,
)


def attention_half(block: Block, batch: Batch, *, window: int | None = None, extra_cut_bytes: int = 0) -> Part:
    """Norm, q, k and v, (rotary embeddings,) fused attention, projection, residual.

    Args:
        block: The sizes of the block.
        batch: The dimensions of the micro-batch.
        window: A token sees this many tokens. None: all earlier ones.
        extra_cut_bytes: What is alive after the layer beside the residual stream.
    """
    return Part(
        operations=(
            block.norm("norm", batch),
            *block.entry(batch),
            *_self_attention(block.split(batch.recipe.tensor_parallel), batch, window),
            *block.exit(batch),
            *branch_norm(block, batch),
            residual("residual", block.stream_bytes(batch)),
        ),
        cut_bytes=block.stream_bytes(batch) + extra_cut_bytes,
    )


def mlp_half(block: Block, batch: Batch, *, extra_cut_bytes: int = 0) -> Part:
    """Norm, up, activation (gated or not), down, residual."""
    return Part(
        operations=(
            block.norm("norm", batch),
            *block.entry(batch),
            *mlp(block, batch, block.inner // batch.recipe.tensor_parallel),
            *block.exit(batch),
            *branch_norm(block, batch),
            residual("residual", block.stream_bytes(batch)),
        ),
        cut_bytes=block.stream_bytes(batch) + extra_cut_bytes,
    )


def parallel_block(block: Block, batch: Batch, *, norms: int) -> Part:
    """Attention and MLP of the same stream, with one norm for both or one for each, and both residuals."""
    stream_bytes = block.stream_bytes(batch)
    projections = mlp(block, batch, block.inner)
    if norms == 1:
        # Attention saves the norm's output, which is the input of the MLP too; their gradients are added.
        shared = msgspec.structs.replace(
            projections[0],
            saved_bytes=projections[0].saved_bytes - stream_bytes,
            pending_bytes=projections[0].pending_bytes - stream_bytes,
        )
        projections = (pointwise("fork", stream_bytes, forward=(), input_grad=(3,)), shared, *projections[1:])
    return Part(
        operations=(
            block.norm("norm", batch),
            *_self_attention(block, batch, None),
            *branch_norm(block, batch),
            *((block.norm("mlp norm", batch),) if norms == 2 else ()),
            *projections,
            residual("attention residual", stream_bytes),
            residual("mlp residual", stream_bytes),
        ),
        cut_bytes=stream_bytes,
    )


def cross_attention_half(block: Block, batch: Batch, *, source: int, source_hidden: int, extra_cut_bytes: int) -> Part:
    """Norm, q of the stream, k and v of the encoder's output, attention, projection, residual.

    Args:
        block: The sizes of the block.
        batch: The dimensions of the micro-batch in the decoder.
        source: Tokens of a row in the encoder.
        source_hidden: Width of the encoder's output.
        extra_cut_bytes: What is alive after the layer beside the residual stream.
    """
    size, source_tokens = batch.element_bytes, batch.micro_batch_size * source
    query, key_value = block.heads * block.head_size, block.key_value_heads * block.head_size
    key_bias = block.qkv_bias if block.key_bias is None else block.key_bias
    return Part(
        operations=(
            block.norm("norm", batch),
            linear("query", batch.tokens, block.hidden, query, bias=block.qkv_bias, element_bytes=size),
            linear("key", source_tokens, source_hidden, key_value, bias=key_bias, element_bytes=size),
            linear(
                "value",
                source_tokens,
                source_hidden,
                key_value,
                bias=block.qkv_bias,
                element_bytes=size,
                keeps_input=False,
            ),
            # The gradients of k and v are added to the gradient of the encoder's output.
            pointwise("encoder gradient", source_tokens * source_hidden * size, forward=(), input_grad=(3, 3)),
            attention(
                "attention",
                batch.micro_batch_size,
                batch.sequence,
                heads=block.heads,
                key_value_heads=block.key_value_heads,
                head_size=block.head_size,
                causal=False,
                element_bytes=size,
                key_sequence=source,
                eager=batch.is_eager,
            ),
            linear("projection", batch.tokens, query, block.hidden, bias=block.projection_bias, element_bytes=size),
            residual("residual", block.stream_bytes(batch)),
        ),
        cut_bytes=block.stream_bytes(batch) + extra_cut_bytes,
    )


def mlp(block: Block, batch: Batch, inner: int) -> tuple[Operation, ...]:
    """Up, activation (gated or not), down. The first operation saves the input."""
    size, inner_bytes = batch.element_bytes, batch.tokens * inner * batch.element_bytes

    def up(name: str, outputs: int, *, keeps_input: bool = True) -> Operation:
        return linear(
            name,
            batch.tokens,
            block.hidden,
            outputs,
            bias=block.mlp_bias,
            element_bytes=size,
            keeps_input=keeps_input,
        )

    first = (
        (up("gate and up", 2 * inner),)
        if block.gated and block.joint_gate
        else (up("gate", inner), up("up", inner, keeps_input=False))
        if block.gated
        else (up("up", inner),)
    )
    return (
        *first,
        activation(block.activation, inner_bytes),
        *((product("gated", inner_bytes),) if block.gated else ()),
        linear("down", batch.tokens, inner, block.hidden, bias=block.mlp_bias, element_bytes=size),
    )


def branch_norm(block: Block, batch: Batch) -> tuple[Operation, ...]:
    """The norm of a branch before the residual, if the family has one."""
    return (block.norm("branch norm", batch),) if block.branch_norms else ()


def rotary(batch: Batch, width: int) -> Operation:
    """Rotary embeddings of `width` numbers for every token.

    Rotating q and k needs the angles only; the backward rotates the gradients back. Attention saves the rotated q, k.
    """
    return pointwise("rotary", batch.tokens * width * batch.element_bytes, forward=(2,), input_grad=(2,))


def _self_attention(block: Block, batch: Batch, window: int | None) -> tuple[Operation, ...]:
    size = batch.element_bytes
    query, key_value = block.heads * block.head_size, block.key_value_heads * block.head_size
    return (
        *_query_key_value(block, batch, query, key_value),
        *_head_norms(block, batch),
        *((rotary(batch, query + key_value),) if block.rotary else ()),
        attention(
            "attention",
            batch.micro_batch_size,
            batch.sequence,
            heads=block.heads,
            key_value_heads=block.key_value_heads,
            head_size=block.head_size,
            causal=block.causal,
            element_bytes=size,
            window=window,
            score_bias=block.score_bias,
            sinks=block.sinks,
            eager=batch.is_eager,
        ),
        linear("projection", batch.tokens, query, block.hidden, bias=block.projection_bias, element_bytes=size),
    )


def _query_key_value(block: Block, batch: Batch, query: int, key_value: int) -> tuple[Operation, ...]:
    def project(name: str, outputs: int, *, bias: bool, keeps_input: bool = True) -> Operation:
        return linear(
            name,
            batch.tokens,
            block.hidden,
            outputs,
            bias=bias,
            element_bytes=batch.element_bytes,
            keeps_input=keeps_input,
        )

    if block.joint_qkv:
        return (project("qkv", query + 2 * key_value, bias=block.qkv_bias),)
    key_bias = block.qkv_bias if block.key_bias is None else block.key_bias
    return (
        project("query", query, bias=block.qkv_bias),
        project("key", key_value, bias=key_bias, keeps_input=False),
        project("value", key_value, bias=block.qkv_bias, keeps_input=False),
    )


def _head_norms(block: Block, batch: Batch) -> tuple[Operation, ...]:
    if not block.query_key_norm:
        return ()
    size = batch.element_bytes
    return (
        rms_norm("query norm", batch.tokens * block.heads, block.head_size, element_bytes=size),
        rms_norm("key norm", batch.tokens * block.key_value_heads, block.head_size, element_bytes=size),
    )
