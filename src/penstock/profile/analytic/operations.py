"""Costs of the operations of transformers: kernels of F, I and W, and the bytes saved between them.

All counts are for one micro-batch. `element_bytes` is the size of one element of an activation or a parameter. A tensor
that several operations save is counted once, in the operation that has it as input.
"""

import msgspec

from penstock.profile.analytic.matmul import Product, Role

FP32_BYTES = 4
ID_BYTES = 8


class Kernel(msgspec.Struct, frozen=True):
    """One kernel launch on a device."""

    moved_bytes: int
    """Bytes read from and written to device memory."""
    flops: int = 0
    """Operations of matrix products. Element-wise kernels are memory-bound on every device kind and count none."""
    product: Product | None = None
    """The shape of the matrix product; None where it is not one product, or where its shape uses the device well."""
    reduced_bytes: int = 0
    """Bytes of an all-reduce over the GPUs that share the layer."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a model: the kernels of F, I and W."""

    name: str
    parameters: int = 0
    inactive_parameters: int = 0
    """Parameters of experts that a token is not routed to."""
    forward: tuple[Kernel, ...] = ()
    input_grad: tuple[Kernel, ...] = ()
    weight_grad: tuple[Kernel, ...] = ()
    saved_bytes: int = 0
    """Saved by the forward for the backward."""
    pending_bytes: int = 0
    """Kept after the input gradient for the weight gradient."""
    recomputed_bytes: int = 0
    """Of `saved_bytes`, those that selective checkpointing computes again from the others."""


def accumulate(parameters: int, element_bytes: int) -> Kernel:
    """Add a new gradient to the accumulated one: read both, write one."""
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
    role: Role = "weight",
) -> Operation:
    """A matrix product with a weight; `keeps_input` is False where another operation saves the same input."""
    weight = inputs * outputs
    input_bytes, output_bytes = tokens * inputs * element_bytes, tokens * outputs * element_bytes

    def product(rows: int, columns: int, depth: int) -> Kernel:
        shape = Product(rows=rows, columns=columns, depth=depth, contiguous=(inputs, outputs), role=role)
        return Kernel(input_bytes + output_bytes + weight * element_bytes, shape.flops, shape)

    weight_grad: tuple[Kernel, ...] = (product(inputs, outputs, tokens), accumulate(weight, element_bytes))
    if bias:
        column_sum = Kernel(output_bytes + outputs * element_bytes)
        weight_grad = (*weight_grad, column_sum, accumulate(outputs, element_bytes))
    kept = input_bytes if keeps_input else 0
    return Operation(
        name=name,
        parameters=weight + (outputs if bias else 0),
        forward=(product(tokens, outputs, inputs),),
        input_grad=(product(tokens, inputs, outputs),),
        weight_grad=weight_grad,
        saved_bytes=kept,
        pending_bytes=kept + output_bytes,
    )


def layer_norm(name: str, tokens: int, hidden: int, *, element_bytes: int, affine: bool = True) -> Operation:
    """A fused LayerNorm: saves its input, and mean and deviation of every token in fp32."""
    return _norm(name, tokens, hidden, vectors=2, element_bytes=element_bytes, affine=affine)


def rms_norm(name: str, tokens: int, hidden: int, *, element_bytes: int) -> Operation:
    """A fused RMSNorm: no bias and no mean."""
    return _norm(name, tokens, hidden, vectors=1, element_bytes=element_bytes, affine=True)


def _norm(name: str, tokens: int, hidden: int, *, vectors: int, element_bytes: int, affine: bool) -> Operation:
    # As many statistics per token as parameter vectors: (scale, shift) and (mean, deviation), or one of each.
    tensor_bytes = tokens * hidden * element_bytes
    kept = tensor_bytes + vectors * tokens * FP32_BYTES
    weight_grad = (Kernel(2 * tensor_bytes), *(accumulate(hidden, element_bytes),) * vectors)
    return Operation(
        name=name,
        parameters=vectors * hidden if affine else 0,
        forward=(Kernel(2 * tensor_bytes),),
        input_grad=(Kernel(3 * tensor_bytes),),
        weight_grad=weight_grad if affine else (),
        saved_bytes=kept,
        pending_bytes=kept + tensor_bytes if affine else 0,
    )


def pointwise(
    name: str, tensor_bytes: int, *, forward: tuple[int, ...], input_grad: tuple[int, ...], saved: int = 0
) -> Operation:
    """Element-wise kernels without parameters: the number of tensors that each reads and writes, and those saved."""
    return Operation(
        name=name,
        forward=tuple(Kernel(count * tensor_bytes) for count in forward),
        input_grad=tuple(Kernel(count * tensor_bytes) for count in input_grad),
        saved_bytes=saved * tensor_bytes,
    )


def activation(name: str, tensor_bytes: int) -> Operation:
    """GELU, SiLU or tanh: reads and writes one tensor; the backward reads the saved input and a gradient."""
    return pointwise(name, tensor_bytes, forward=(2,), input_grad=(3,), saved=1)


def product(name: str, tensor_bytes: int) -> Operation:
    """Element-wise product of two tensors; each is saved for the gradient of the other."""
    return pointwise(name, tensor_bytes, forward=(3,), input_grad=(3, 3), saved=2)


def residual(name: str, tensor_bytes: int) -> Operation:
    """A branch added to the residual stream; the backward adds the two gradients where the stream forks."""
    return pointwise(name, tensor_bytes, forward=(3,), input_grad=(3,))


def all_reduce(name: str, num_bytes: int, *, forward: bool, input_grad: bool) -> Operation:
    """An all-reduce over the GPUs that share the layer, in the forward or in the input gradient."""
    kernel = (Kernel(0, reduced_bytes=num_bytes),)
    return Operation(name=name, forward=kernel if forward else (), input_grad=kernel if input_grad else ())


def lookup(name: str, tokens: int, table_rows: int, hidden: int, *, element_bytes: int) -> Operation:
    """An embedding lookup by token ids; the backward zeroes a dense gradient and adds the rows of the tokens."""
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
    """Learned positions added to every row; their gradient is a sum over rows. No tensor is saved."""
    stream_bytes, used_bytes = micro_batch_size * sequence * hidden * element_bytes, sequence * hidden * element_bytes
    return Operation(
        name=name,
        parameters=table_rows * hidden,
        forward=(Kernel(2 * stream_bytes + used_bytes),),
        weight_grad=(Kernel(stream_bytes + used_bytes), accumulate(table_rows * hidden, element_bytes)),
    )


def cross_entropy(name: str, tokens: int, classes: int, *, element_bytes: int) -> Operation:
    """The loss in fp32: log-softmax (saved) and selection of the label; lower precision is cast before and after."""
    count = tokens * classes
    wide_bytes, label_bytes = count * FP32_BYTES, tokens * ID_BYTES
    cast = () if element_bytes == FP32_BYTES else (Kernel(wide_bytes + count * element_bytes),)
    return Operation(
        name=name,
        forward=(*cast, Kernel(2 * wide_bytes), Kernel(tokens * FP32_BYTES + label_bytes)),
        input_grad=(Kernel(wide_bytes), Kernel(3 * wide_bytes), *cast),
        saved_bytes=wide_bytes + label_bytes,
    )
