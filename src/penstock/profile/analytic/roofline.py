"""Times of kernels by the roofline of a device, plus a launch overhead for each."""

from collections.abc import Iterable

from penstock.profile.analytic.model_parts import Part
from penstock.profile.analytic.operations import Kernel
from penstock.profile.device_kinds import DeviceKind, Precision
from penstock.profile.types import Sizes, Times

# AdamW reads and writes 28 bytes for each parameter in both precisions.
#   bf16: reads the gradient (2), the fp32 master copy and two moments (12); writes those three and the parameter (14).
#   fp32: reads parameter, gradient and two moments (16); writes all but the gradient (12).
STEP_BYTES_PER_PARAMETER = 28


def seconds(kernels: Iterable[Kernel], kind: DeviceKind, precision: Precision) -> float:
    """Return the seconds of kernels that run one after another: each is compute- or memory-bound, plus a launch."""
    flops_rate, bytes_rate = kind.matmul_rate(precision), kind.memory_rate
    return sum(max(kernel.flops / flops_rate, kernel.moved_bytes / bytes_rate) + kind.launch_s for kernel in kernels)


def part_times(part: Part, micro_batch_size: int, kind: DeviceKind, precision: Precision) -> Times:
    """Return the times of a layer: forward, input gradient, weight gradient and optimizer step."""
    forward = [kernel for operation in part.operations for kernel in operation.forward]
    input_grad = [kernel for operation in part.operations for kernel in operation.input_grad]
    weight_grad = [kernel for operation in part.operations for kernel in operation.weight_grad]
    if part.takes_data:
        # Gradients inside the layer serve its weights only: no earlier layer waits for them.
        input_grad, weight_grad = [], input_grad + weight_grad
    # One fused kernel updates all parameters of a layer.
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
    """Return the cut, saved and pending bytes of a layer."""
    return Sizes(
        micro_batch_size=micro_batch_size,
        cut_bytes=part.cut_bytes,
        saved_bytes=part.saved_bytes,
        pending_bytes=part.pending_bytes,
    )
