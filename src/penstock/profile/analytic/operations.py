"""What the operations of transformers cost: kernels for each of F, I and W, and the bytes that wait between them.

Every function counts for one micro-batch. `element_bytes` is the size of one number of an activation or a parameter.
A tensor that several operations keep is counted by one of them: the one that takes it as its input.
"""

import msgspec

FP32_BYTES = 4
ID_BYTES = 8


class Kernel(msgspec.Struct, frozen=True):
    """One launch on a device."""

    moved_bytes: int
    """Read from and written to the device's memory."""
    flops: int = 0
    """Of matrix products. Element-wise arithmetic hides behind its memory traffic on every kind and counts none."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a model with its three jobs."""

    name: str
    parameters: int = 0
    forward: tuple[Kernel, ...] = ()
    input_grad: tuple[Kernel, ...] = ()
    weight_grad: tuple[Kernel, ...] = ()
    saved_bytes: int = 0
    """Kept from the forward for the backward."""
    pending_bytes: int = 0
    """Kept after the input gradient for the weight gradient."""


def accumulate(parameters: int, element_bytes: int) -> Kernel:
    """Add a fresh gradient onto the one of earlier micro-batches: read both, write one."""
    return Kernel(3 * parameters * element_bytes)


def linear(
    name: str,
    tokens: int,
    inputs: int,
    outputs: int,
    *,
    bias: bool,
    element_bytes: int,
    keeps_input: bool = True,
) -> Operation:
    """A matrix product with a weight; `keeps_input` is False where another operation keeps the same input."""
    weight = inputs * outputs
    flops = 2 * tokens * weight
    input_bytes, output_bytes = tokens * inputs * element_bytes, tokens * outputs * element_bytes
    product = Kernel(input_bytes + output_bytes + weight * element_bytes, flops)
    weight_grad: tuple[Kernel, ...] = (product, accumulate(weight, element_bytes))
    if bias:
        column_sum = Kernel(output_bytes + outputs * element_bytes)
        weight_grad = (*weight_grad, column_sum, accumulate(outputs, element_bytes))
    kept = input_bytes if keeps_input else 0
    return Operation(
        name=name,
        parameters=weight + (outputs if bias else 0),
        forward=(product,),
        input_grad=(product,),
        weight_grad=weight_grad,
        saved_bytes=kept,
        pending_bytes=kept + output_bytes,
    )


def layer_norm(name: str, tokens: int, hidden: int, *, element_bytes: int) -> Operation:
    """A fused LayerNorm, which keeps its input, and the mean and deviation of every token in fp32."""
    return _norm(name, tokens, hidden, vectors=2, element_bytes=element_bytes)


def rms_norm(name: str, tokens: int, hidden: int, *, element_bytes: int) -> Operation:
    """A fused RMSNorm: no bias and no mean."""
    return _norm(name, tokens, hidden, vectors=1, element_bytes=element_bytes)


def _norm(name: str, tokens: int, hidden: int, *, vectors: int, element_bytes: int) -> Operation:
    # As many statistics a token as parameter vectors: (scale, shift) and (mean, deviation), or scale and deviation.
    tensor_bytes = tokens * hidden * element_bytes
    kept = tensor_bytes + vectors * tokens * FP32_BYTES
    return Operation(
        name=name,
        parameters=vectors * hidden,
        forward=(Kernel(2 * tensor_bytes),),
        input_grad=(Kernel(3 * tensor_bytes),),
        weight_grad=(Kernel(2 * tensor_bytes), *(accumulate(hidden, element_bytes),) * vectors),
        saved_bytes=kept,
        pending_bytes=kept + tensor_bytes,
    )


def pointwise(
    name: str, tensor_bytes: int, *, forward: tuple[int, ...], input_grad: tuple[int, ...], saved: int = 0
) -> Operation:
    """Element-wise kernels without parameters: for each, how many tensors it reads and writes; and tensors kept."""
    return Operation(
        name=name,
        forward=tuple(Kernel(count * tensor_bytes) for count in forward),
        input_grad=tuple(Kernel(count * tensor_bytes) for count in input_grad),
        saved_bytes=saved * tensor_bytes,
    )


def activation(name: str, tensor_bytes: int) -> Operation:
    """GELU, SiLU or tanh: reads one tensor, writes one; its backward reads the kept input and a gradient."""
    return pointwise(name, tensor_bytes, forward=(2,), input_grad=(3,), saved=1)


def product(name: str, tensor_bytes: int) -> Operation:
    """Two tensors multiplied element by element; each is kept for the other's gradient."""
    return pointwise(name, tensor_bytes, forward=(3,), input_grad=(3, 3), saved=2)


def residual(name: str, tensor_bytes: int) -> Operation:
    """A branch added to its stream; backward, the two gradients meet where the stream forked."""
    return pointwise(name, tensor_bytes, forward=(3,), input_grad=(3,))


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
) -> Operation:
    """Fused attention (flash style): scores are never stored, and backward computes them again.

    Forward is two products, Q K^T and P V; backward is five: the scores again, and the gradients of V, P, Q and K.
    It keeps q, k, v and the fp32 log-sum-exp; its output is kept by the projection that follows.
    """
    query_bytes = micro_batch_size * sequence * heads * head_size * element_bytes
    key_value_bytes = 2 * micro_batch_size * sequence * key_value_heads * head_size * element_bytes
    log_sum_bytes = micro_batch_size * sequence * heads * FP32_BYTES
    one_product = 2 * micro_batch_size * sequence * sequence * heads * head_size
    if causal:
        one_product //= 2
    inputs = query_bytes + key_value_bytes
    return Operation(
        name=name,
        forward=(Kernel(inputs + query_bytes + log_sum_bytes, 2 * one_product),),
        input_grad=(Kernel(2 * inputs + 2 * query_bytes + log_sum_bytes, 5 * one_product),),
        saved_bytes=inputs + log_sum_bytes,
    )


def lookup(name: str, tokens: int, table_rows: int, hidden: int, *, element_bytes: int) -> Operation:
    """Rows of a table picked by token ids; backward fills a dense gradient with zeros and adds the tokens' rows."""
    stream_bytes, id_bytes = tokens * hidden * element_bytes, tokens * ID_BYTES
    table_bytes = table_rows * hidden * element_bytes
    return Operation(
        name=name,
        parameters=table_rows * hidden,
        forward=(Kernel(2 * stream_bytes + id_bytes),),
        weight_grad=(
            Kernel(table_bytes),
            Kernel(3 * stream_bytes + id_bytes),
            accumulate(table_rows * hidden, element_bytes),
        ),
        saved_bytes=id_bytes,
        pending_bytes=id_bytes,
    )


def position_table(
    name: str, micro_batch_size: int, sequence: int, table_rows: int, hidden: int, *, element_bytes: int
) -> Operation:
    """Learned positions added to every row; their gradient is a sum over rows. Nothing has to be kept."""
    stream_bytes, used_bytes = micro_batch_size * sequence * hidden * element_bytes, sequence * hidden * element_bytes
    return Operation(
        name=name,
        parameters=table_rows * hidden,
        forward=(Kernel(2 * stream_bytes + used_bytes),),
        weight_grad=(Kernel(stream_bytes + used_bytes), accumulate(table_rows * hidden, element_bytes)),
    )


def cross_entropy(name: str, tokens: int, classes: int, *, element_bytes: int) -> Operation:
    """The loss in fp32: log-softmax (kept) and the pick of the label; lower precision is cast before and after."""
    count = tokens * classes
    wide_bytes, label_bytes = count * FP32_BYTES, tokens * ID_BYTES
    cast = () if element_bytes == FP32_BYTES else (Kernel(wide_bytes + count * element_bytes),)
    return Operation(
        name=name,
        forward=(*cast, Kernel(2 * wide_bytes), Kernel(tokens * FP32_BYTES + label_bytes)),
        input_grad=(Kernel(wide_bytes), Kernel(3 * wide_bytes), *cast),
        saved_bytes=wide_bytes + label_bytes,
    )
