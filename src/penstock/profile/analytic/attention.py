"""Costs of attention, fused and eager."""

from penstock.profile.analytic.matmul import Product
from penstock.profile.analytic.operations import FP32_BYTES, Kernel, Operation, accumulate


def attention(
    name: str,
    micro_batch_size: int,
    sequence: int,
    *,
    heads: int,
    key_value_heads: int,
    head_size: int,
    causal: bool,
    element_bytes: int,
    value_size: int | None = None,
    key_sequence: int | None = None,
    window: int | None = None,
    score_bias: bool = False,
    sinks: bool = False,
    eager: bool = False,
) -> Operation:
    """Attention, fused or eager. It saves q, k and v; the projection that follows saves its output.

    Fused (FlashAttention): scores are never stored. The forward is two products, Q K^T and P V; the backward is five:
    the scores, and the gradients of V, P, Q and K. It saves the fp32 log-sum-exp.

    Eager: q, k and v are put in order by heads, and products and softmax are kernels of their own, over all pairs of
    queries and keys, whatever the mask. The probabilities are saved.

    Args:
        name: Name of the operation.
        micro_batch_size: Rows of the micro-batch.
        sequence: Queries of a row.
        heads: Query heads.
        key_value_heads: Heads of keys and values.
        head_size: Width of a query or key.
        causal: A token sees itself and earlier tokens only.
        element_bytes: Bytes of one element.
        value_size: Width of a value (default: `head_size`).
        key_sequence: Keys of a row, if they come from another sequence.
        window: A causal token sees this many tokens.
        score_bias: A tensor of heads x queries x keys is added to the scores and has a gradient.
        sinks: Every head has one parameter that takes part in the softmax.
        eager: Eager attention.
    """
    keys, value = key_sequence or sequence, value_size or head_size
    query_bytes = micro_batch_size * sequence * heads * head_size * element_bytes
    output_bytes = micro_batch_size * sequence * heads * value * element_bytes
    key_value_bytes = micro_batch_size * keys * key_value_heads * (head_size + value) * element_bytes
    log_sum_bytes = micro_batch_size * sequence * heads * FP32_BYTES
    bias_bytes = heads * sequence * keys * element_bytes if score_bias else 0
    # Operations of one product per element of width: two for every pair of a query and a key that it sees.
    per_element = micro_batch_size * heads * _twice_pairs(sequence, keys, causal=causal, window=window)
    inputs = query_bytes + key_value_bytes
    weight_grad = (accumulate(heads, element_bytes),) if sinks else ()
    if eager:
        scores_bytes = micro_batch_size * heads * sequence * keys * element_bytes

        def product(rows: int, columns: int, depth: int) -> Kernel:
            batch = micro_batch_size * heads
            lengths = (keys, head_size, value)
            shape = Product(rows=rows, columns=columns, depth=depth, batch=batch, contiguous=lengths, role="activation")
            moved = batch * (rows * depth + depth * columns + rows * columns) * element_bytes
            return Kernel(moved, shape.flops, shape)

        order, put_back = Kernel(2 * inputs), Kernel(2 * output_bytes)
        return Operation(
            name=name,
            parameters=heads if sinks else 0,
            forward=(
                order,
                product(sequence, keys, head_size),
                Kernel(2 * scores_bytes + bias_bytes),
                product(sequence, value, keys),
                put_back,
            ),
            input_grad=(
                put_back,
                product(keys, value, sequence),
                product(sequence, keys, value),
                Kernel(3 * scores_bytes + 2 * bias_bytes),
                product(sequence, head_size, keys),
                product(keys, head_size, sequence),
                order,
            ),
            weight_grad=weight_grad,
            saved_bytes=inputs + scores_bytes,
            recomputed_bytes=scores_bytes,
        )
    return Operation(
        name=name,
        parameters=heads if sinks else 0,
        forward=(Kernel(inputs + output_bytes + log_sum_bytes + bias_bytes, per_element * (head_size + value)),),
        input_grad=(
            Kernel(
                2 * inputs + 2 * output_bytes + log_sum_bytes + 3 * bias_bytes,
                per_element * (3 * head_size + 2 * value),
            ),
        ),
        weight_grad=weight_grad,
        saved_bytes=inputs + log_sum_bytes + bias_bytes,
    )


def _twice_pairs(sequence: int, keys: int, *, causal: bool, window: int | None) -> int:
    if not causal:
        return 2 * sequence * keys
    seen = min(window or sequence, sequence)
    return 2 * sequence * seen - seen * seen
