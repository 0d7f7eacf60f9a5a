"""Times of kernels by the roofline of a device, and by what its host needs to launch them."""

from collections.abc import Iterable, Sequence

import msgspec

from penstock.profile.analytic.matmul import product_rate
from penstock.profile.analytic.model_parts import Part
from penstock.profile.analytic.operations import Kernel
from penstock.profile.collectives import AllReduce, estimated_all_reduce
from penstock.profile.data_sheets import DeviceKind
from penstock.profile.device_kinds import group_kind
from penstock.profile.recipe import Recipe
from penstock.profile.types import Sizes, Times

# AdamW reads and writes 28 bytes for each parameter in all precisions.
#   Mixed: reads the gradient (2), the fp32 master copy and two moments (12); writes those three and the parameter (14).
#   fp32: reads parameter, gradient and two moments (16); writes all but the gradient (12).
STEP_BYTES_PER_PARAMETER = 28
KERNEL_S = 4e-6
"""The least seconds of a kernel on the device."""
BACKWARD_LAUNCH_RATIO = 0.25
"""Kernels of a backward are launched by the autograd engine, without Python, in about a quarter of the host's time."""


class Pricer(msgspec.Struct, frozen=True):
    """What kernels are priced on: a device, a recipe, and the all-reduces between the GPUs that share a layer."""

    kind: DeviceKind
    recipe: Recipe
    all_reduce: AllReduce

    def kernel_s(self, kernel: Kernel) -> float:
        """Return the seconds of a kernel on the device: by arithmetic, memory or links, whichever is longest."""
        by_memory = kernel.moved_bytes / self.kind.memory_rate
        by_links = self.all_reduce(self.recipe.tensor_parallel, kernel.reduced_bytes) if kernel.reduced_bytes else 0.0
        return max(self._arithmetic_s(kernel), by_memory, by_links, KERNEL_S)

    def _arithmetic_s(self, kernel: Kernel) -> float:
        if kernel.flops == 0:
            return 0.0
        precision = self.recipe.precision
        if kernel.product is not None:
            return kernel.flops / product_rate(kernel.product, self.kind, precision)
        return kernel.flops / self.kind.matmul_rate("bf16" if precision == "fp8" else precision)

    def device_s(self, kernels: Iterable[Kernel]) -> float:
        """Return the seconds of kernels that run one after another on the device."""
        return sum(map(self.kernel_s, kernels))

    def forward_s(self, kernels: Sequence[Kernel]) -> float:
        """Return the seconds of a forward. The host launches kernels while earlier ones run."""
        return max(self.device_s(kernels), len(kernels) * self.kind.launch_s)

    def backward_s(
        self, rerun: Sequence[Kernel], input_grad: Sequence[Kernel], weight_grad: Sequence[Kernel]
    ) -> tuple[float, float]:
        """Return the seconds of the input gradient, checkpointed forwards included, and of the weight gradient.

        The host launches all of them in one go. If it is the slower one, both parts grow by the same factor.
        """
        parts = self.device_s([*rerun, *input_grad]), self.device_s(weight_grad)
        on_device = sum(parts)
        launches = len(rerun) + BACKWARD_LAUNCH_RATIO * (len(input_grad) + len(weight_grad))
        slower = max(1.0, launches * self.kind.launch_s / on_device) if on_device else 1.0
        return parts[0] * slower, parts[1] * slower


def pricer(kind: DeviceKind, recipe: Recipe, all_reduce: AllReduce | None = None) -> Pricer:
    """Return a pricer; all-reduces are estimated from the device's links if they are not given."""
    return Pricer(kind, recipe, all_reduce or estimated_all_reduce(kind.peer_bandwidth))


def part_times(part: Part, micro_batch_size: int, pricer: Pricer) -> Times:
    """Return the times of a layer: forward, input gradient, weight gradient and optimizer step."""
    forward = [kernel for operation in part.operations for kernel in operation.forward]
    input_grad = [kernel for operation in part.operations for kernel in operation.input_grad]
    weight_grad = [kernel for operation in part.operations for kernel in operation.weight_grad]
    if part.takes_data:
        # Gradients inside the layer serve its weights only: no earlier layer waits for them.
        input_grad, weight_grad = [], input_grad + weight_grad
    # One fused kernel updates all parameters of a layer.
    step = [Kernel(STEP_BYTES_PER_PARAMETER * part.parameters)] if part.parameters else []
    input_grad_s, weight_grad_s = pricer.backward_s(part.rerun, input_grad, weight_grad)
    return Times(
        kind=group_kind(pricer.kind.name, pricer.recipe.tensor_parallel),
        micro_batch_size=micro_batch_size,
        forward_s=pricer.forward_s(forward),
        input_grad_s=input_grad_s,
        weight_grad_s=weight_grad_s,
        step_s=pricer.device_s(step),
    )


def part_sizes(part: Part, micro_batch_size: int) -> Sizes:
    """Return the cut, saved and pending bytes of a layer."""
    return Sizes(
        micro_batch_size=micro_batch_size,
        cut_bytes=part.cut_bytes,
        saved_bytes=part.saved_bytes,
        pending_bytes=part.pending_bytes,
    )
