"""The MLP half of a mixture of experts: router, routed experts, shared experts.

Every token is routed to a few experts; only these cost time. All experts have parameters, gradients and optimizer
state. Routing is balanced: every expert gets the same number of tokens, and none is
dropped.
"""

import msgspec

from penstock.profile.analytic.blocks.block import Block
from penstock.profile.analytic.blocks.halves import mlp
from penstock.profile.analytic.model_parts import Batch, Part
from penstock.profile.analytic.operations import (
    FP32_BYTES,
    Kernel,
    Operation,
    accumulate,
    activation,
    linear,
    pointwise,
    product,
    residual,
)


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """The experts of a block."""

    count: int
    per_token: int
    """Experts that a token is routed to."""
    inner: int
    shared_inner: int = 0
    """Width of the shared experts together, which every token uses. 0: none."""
    router_bias: bool = False
    bias: bool = False


def experts_half(block: Block, experts: Experts, batch: Batch) -> Part:
    """Norm, router, dispatch, gated experts, combination, (shared experts,) residual."""
    size, stream_bytes = batch.element_bytes, block.stream_bytes(batch)
    routed = batch.tokens * experts.per_token
    routed_bytes, inner_bytes = routed * block.hidden * size, routed * experts.inner * size
    shared = (
        (
            # The router saves the norm's output, which is the input of the shared experts too.
            *_without_input(mlp(block, batch, experts.shared_inner), stream_bytes),
            residual("shared", stream_bytes),
        )
        if experts.shared_inner
        else ()
    )
    return Part(
        operations=(
            block.norm("norm", batch),
            linear("router", batch.tokens, block.hidden, experts.count, bias=experts.router_bias, element_bytes=size),
            # Softmax or sigmoid of the router's scores in fp32, and the choice of the largest.
            pointwise("choice", batch.tokens * experts.count * FP32_BYTES, forward=(2, 1), input_grad=(3,), saved=1),
            # Copies of the tokens, in the order of experts; the backward adds their gradients.
            pointwise("dispatch", routed_bytes, forward=(2,), input_grad=(2,)),
            _grouped("gate and up", experts, routed, block.hidden, 2 * experts.inner, element_bytes=size),
            activation(block.activation, inner_bytes),
            product("gated", inner_bytes),
            _grouped("down", experts, routed, experts.inner, block.hidden, element_bytes=size),
            # Outputs times router weights, added to every token; the outputs are saved for the router's gradient.
            pointwise("combination", routed_bytes, forward=(2,), input_grad=(3,), saved=1),
            *shared,
            residual("residual", stream_bytes),
        ),
        cut_bytes=stream_bytes,
    )


def _grouped(name: str, experts: Experts, routed: int, inputs: int, outputs: int, *, element_bytes: int) -> Operation:
    """One matrix product for every expert, in one kernel over all routed tokens."""
    one, biases = inputs * outputs, outputs if experts.bias else 0
    input_bytes, output_bytes = routed * inputs * element_bytes, routed * outputs * element_bytes
    # Experts without a token are not read. Their gradient is zero, but it is a part of one tensor for all experts.
    used = min(experts.count, routed)
    kernel = Kernel(input_bytes + output_bytes + used * one * element_bytes, 2 * routed * one)
    bias_grad = (Kernel(output_bytes), accumulate(experts.count * biases, element_bytes)) if biases else ()
    return Operation(
        name=name,
        parameters=experts.count * (one + biases),
        inactive_parameters=(experts.count - experts.per_token) * (one + biases),
        forward=(kernel,),
        input_grad=(kernel,),
        weight_grad=(kernel, accumulate(experts.count * one, element_bytes), *bias_grad),
        saved_bytes=input_bytes,
        pending_bytes=input_bytes + output_bytes,
    )


def _without_input(operations: tuple[Operation, ...], input_bytes: int) -> tuple[Operation, ...]:
    first = operations[0]
    kept = msgspec.structs.replace(
        first, saved_bytes=first.saved_bytes - input_bytes, pending_bytes=first.pending_bytes - input_bytes
    )
    return (kept, *operations[1:])
