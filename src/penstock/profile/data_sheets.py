"""The data sheets of devices, and the fractions of them that kernels attain."""

import msgspec

from penstock.errors import InputError
from penstock.profile.recipe import Precision

LAUNCH_S = 110e-6
"""Seconds that the host of an eager framework takes for an operation of the forward: module, dispatch, autograd graph
and launch. An estimate."""


MISALIGNED_FRACTION = 0.4
"""Tensor cores read rows of 16 bytes. Products whose rows are no multiple of that run at less than half of the rate."""


class DeviceKind(msgspec.Struct, frozen=True, kw_only=True):
    """A device model: figures of its data sheet, and the fractions of them that kernels attain."""

    name: str
    tensor_flops_per_s: float
    """Dense bf16 (before Ampere: fp16) matrix products on tensor cores with fp32 accumulation."""
    fp32_flops_per_s: float
    """fp32 outside the tensor cores, without TF32."""
    memory_bandwidth: float
    """Bytes per second between the chip and its memory."""
    memory_bytes: int
    matmul_fraction: float
    """Fraction of a peak that large matrix products attain."""
    bandwidth_fraction: float
    """Fraction of `memory_bandwidth` that large element-wise kernels attain."""
    multiprocessors: int
    """Parts of the chip that work on tiles of a matrix product: streaming multiprocessors or compute units."""
    peer_bandwidth: float
    """Bytes per second and direction between this device and all others of its host together."""
    tf32_flops_per_s: float | None = None
    """Dense TF32 matrix products. None: the device has none."""
    fp8_flops_per_s: float | None = None
    """Dense fp8 matrix products. None: the device has none."""
    misaligned_fraction: float = MISALIGNED_FRACTION
    """Fraction of the attainable rate of products whose rows in memory are no multiple of 16 bytes."""
    launch_s: float = LAUNCH_S
    """Seconds that the host takes for an operation of the forward."""

    def matmul_rate(self, precision: Precision = "bf16") -> float:
        """Return the attainable operations per second of matrix products.

        Raises:
            InputError: The device has no products of this precision.
        """
        peak = {
            "bf16": self.tensor_flops_per_s,
            "fp16": self.tensor_flops_per_s,
            "fp32": self.fp32_flops_per_s,
            "tf32": self.tf32_flops_per_s,
            "fp8": self.fp8_flops_per_s,
        }[precision]
        if peak is None:
            raise InputError(
                f"{self.name} has no {precision} products", where="precision", hint="Choose another precision or kind."
            )
        return peak * self.matmul_fraction

    @property
    def memory_rate(self) -> float:
        """Attainable bytes per second."""
        return self.memory_bandwidth * self.bandwidth_fraction


def _kind(
    name: str,
    peaks: tuple[float, float | None, float, float | None],
    memory: tuple[float, int],
    fractions: tuple[float, float],
    multiprocessors: int,
    peer: float,
) -> DeviceKind:
    """A kind from figures in the units of data sheets: 10**12 operations, GB/s and GB. Peaks: bf16, TF32, fp32, fp8."""
    bf16, tf32, fp32, fp8 = peaks
    return DeviceKind(
        name=name,
        tensor_flops_per_s=bf16 * 1e12,
        tf32_flops_per_s=None if tf32 is None else tf32 * 1e12,
        fp32_flops_per_s=fp32 * 1e12,
        fp8_flops_per_s=None if fp8 is None else fp8 * 1e12,
        memory_bandwidth=memory[0] * 1e9,
        memory_bytes=memory[1] * 10**9,
        matmul_fraction=fractions[0],
        bandwidth_fraction=fractions[1],
        multiprocessors=multiprocessors,
        peer_bandwidth=peer * 1e9,
    )


# Sources of the figures.
#   Peaks, bandwidth, memory, multiprocessors and links: the vendors' public data sheets and architecture papers.
#   NVIDIA: B200 (HGX and DGX B200), H200 SXM, GH200 with 96 GB of HBM3, H100 SXM5, A100 SXM4 in both memory sizes,
#   V100 SXM2, T4, L4, L40S, A10; the papers on Turing TU102, Ampere GA102, Ada AD102 and Blackwell GB202 for the
#   GeForce and Titan cards, with the rate for fp32 accumulation, which is half of the fp16-accumulation rate on GeForce
#   cards and the full rate on Titan RTX. AMD: Instinct MI300X.
#   Rates quoted with structured sparsity are halved. Memory is the nominal size in decimal bytes, slightly below the
#   physical size, which leaves room for the driver. Links: NVLink or Infinity Fabric in one direction where the module
#   has them, otherwise PCI Express with 16 lanes.
#   The fractions and the launch time are not on data sheets. They are round estimates of what large matrix products
#   and element-wise kernels commonly attain. Power limits hold H100, H200, B200 and the two 70-watt cards below their
#   peak; GeForce cards run above their nominal clock; MI300X lowers its clock in large products.
_HOPPER = (989.4, 494.7, 66.9, 1978.9)
_AMPERE = (312.0, 156.0, 19.5, None)

DATA_SHEETS = (
    _kind("B200", (2250, 1125, 75, 4500), (8000, 180), (0.62, 0.85), 148, 900),
    _kind("H200", _HOPPER, (4800, 141), (0.62, 0.85), 132, 450),
    _kind("GH200", _HOPPER, (4000, 96), (0.62, 0.85), 132, 450),
    _kind("H100", _HOPPER, (3350, 80), (0.62, 0.85), 132, 450),
    _kind("A100-80", _AMPERE, (2039, 80), (0.75, 0.85), 108, 300),
    _kind("A100-40", _AMPERE, (1555, 40), (0.75, 0.85), 108, 300),
    _kind("MI300X", (1307.4, 653.7, 163.4, 2614.9), (5300, 192), (0.48, 0.80), 304, 448),
    _kind("V100-16", (125, None, 15.7, None), (900, 16), (0.70, 0.85), 80, 150),
    _kind("L40S", (362.05, 183, 91.6, 733), (864, 48), (0.65, 0.85), 142, 32),
    _kind("A10", (125, 62.5, 31.2, None), (600, 24), (0.55, 0.85), 72, 32),
    _kind("L4", (121, 60, 30.3, 242.5), (300, 24), (0.55, 0.85), 58, 32),
    _kind("T4", (65, None, 8.1, None), (300, 16), (0.45, 0.80), 40, 16),
    _kind("RTX-5090", (209.5, 104.8, 104.8, 419), (1792, 32), (0.85, 0.88), 170, 64),
    _kind("RTX-4090", (165.2, 82.6, 82.6, 330.3), (1008, 24), (0.85, 0.88), 128, 32),
    _kind("RTX-3090", (71, 35.6, 35.6, None), (936, 24), (0.85, 0.88), 82, 32),
    _kind("Titan-RTX", (130.5, None, 16.3, None), (672, 24), (0.65, 0.85), 72, 16),
    _kind("RTX-2080Ti", (53.8, None, 13.4, None), (616, 11), (0.85, 0.85), 68, 16),
)
"""All kinds with data sheets."""
