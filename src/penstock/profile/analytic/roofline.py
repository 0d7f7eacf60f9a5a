"""From kernels to seconds: the roofline of a device, and what every launch costs on top."""

from collections.abc import Iterable

from penstock.profile.analytic.model_parts import Part
from penstock.profile.analytic.operations import Kernel
from penstock.profile.device_kinds import Kind, Precision
from penstock.profile.types import Sizes, Times

# AdamW touches 28 bytes for each parameter in both precisions.
#   bf16: reads the gradient (2), the fp32 master copy and two moments (12); writes those three and the parameter (14).
#   fp32: reads parameter, gradient and two moments (16); writes all but the gradient (12).
STEP_BYTES_PER_PARAMETER = 28


def seconds(kernels: Iterable[Kernel], kind: Kind, precision: Precision) -> float:
    """Seconds of kernels that run one after another: each waits for its arithmetic or its memory, and is launched."""
    flops_rate, bytes_rate = kind.matmul_rate(precision), kind.memory_rate
    return sum(max(kernel.flops / flops_rate, kernel.moved_bytes / bytes_rate) + kind.launch_s for kernel in kernels)


def part_times(part: Part, micro_batch_size: int, kind: Kind, precision: Precision) -> Times:
    """Seconds of the three jobs, and of the optimizer's step, for a unit made of `part`."""
    forward = [kernel for operation in part.operations for kernel in operation.forward]
    input_grad = [kernel for operation in part.operations for kernel in operation.input_grad]
    weight_grad = [kernel for operation in part.operations for kernel in operation.weight_grad]
    if part.takes_data:
        # Gradients that flow inside the unit serve its weights only: nobody waits for them.
        input_grad, weight_grad = [], input_grad + weight_grad
    # One fused kernel steps all parameters of a unit, if it has any.
    step = [Kernel(STEP_BYTES_PER_PARAMETER * part.parameters)] if part.parameters else []
    return Times(
        kind=kind.name,
        micro_batch_size=micro_batch_size,
        forward_s=seconds(forward, kind, precision),
        input_grad_s=seconds(input_grad, kind, precision),
        weight_grad_s=seconds(weight_grad, kind, precision),
        step_s=seconds(step, kind, precision),
    )


def part_sizes(part: Part, micro_batch_size: int) -> Sizes:
    """Bytes that cross, are kept, and wait, for a unit made of `part`."""
    return Sizes(
        micro_batch_size=micro_batch_size,
        cut_bytes=part.cut_bytes,
        saved_bytes=part.saved_bytes,
        pending_bytes=part.pending_bytes,
    )
