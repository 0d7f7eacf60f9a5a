"""Device kinds with known data sheets, and the fraction of the peak that real kernels reach."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import msgspec

from penstock.names import near_names

Precision = Literal["bf16", "fp32"]


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
    """Fraction of either peak that large matrix products attain."""
    bandwidth_fraction: float
    """Fraction of `memory_bandwidth` that large element-wise kernels attain."""
    launch_s: float
    """Launch overhead of every kernel, in seconds."""

    def matmul_rate(self, precision: Precision = "bf16") -> float:
        """Return the attainable operations per second of matrix products."""
        peak = self.tensor_flops_per_s if precision == "bf16" else self.fp32_flops_per_s
        return peak * self.matmul_fraction

    @property
    def memory_rate(self) -> float:
        """Attainable bytes per second."""
        return self.memory_bandwidth * self.bandwidth_fraction


# Sources of the figures.
#   Peaks, bandwidth and memory: the vendor's public data sheets and architecture papers (NVIDIA: H100 SXM5, A100 SXM4
#   in both memory sizes, V100 SXM2, T4, L4; Ampere GA102 and Ada AD102 papers for the two GeForce cards, with the rate
#   for fp32 accumulation, which is half of the fp16-accumulation rate). Rates quoted with structured sparsity are
#   halved. Memory is the nominal size in decimal bytes, slightly below the physical size, which leaves room for the
#   driver.
#   The fractions and the launch time are not on data sheets. They are round estimates of what large matrix products
#   and element-wise kernels commonly attain. Power limits hold H100 and the two 70-watt cards below their peak; GeForce
#   cards run above their nominal clock. A launch costs eager frameworks about 5 microseconds of host time.
_LAUNCH_S = 5e-6

_ALL = (
    DeviceKind(
        name="H100",
        tensor_flops_per_s=989.4e12,
        fp32_flops_per_s=66.9e12,
        memory_bandwidth=3.35e12,
        memory_bytes=80_000_000_000,
        matmul_fraction=0.62,
        bandwidth_fraction=0.85,
        launch_s=_LAUNCH_S,
    ),
    DeviceKind(
        name="A100-80",
        tensor_flops_per_s=312e12,
        fp32_flops_per_s=19.5e12,
        memory_bandwidth=2.039e12,
        memory_bytes=80_000_000_000,
        matmul_fraction=0.75,
        bandwidth_fraction=0.85,
        launch_s=_LAUNCH_S,
    ),
    DeviceKind(
        name="A100-40",
        tensor_flops_per_s=312e12,
        fp32_flops_per_s=19.5e12,
        memory_bandwidth=1.555e12,
        memory_bytes=40_000_000_000,
        matmul_fraction=0.75,
        bandwidth_fraction=0.85,
        launch_s=_LAUNCH_S,
    ),
    DeviceKind(
        name="V100-16",
        tensor_flops_per_s=125e12,
        fp32_flops_per_s=15.7e12,
        memory_bandwidth=0.9e12,
        memory_bytes=16_000_000_000,
        matmul_fraction=0.70,
        bandwidth_fraction=0.85,
        launch_s=_LAUNCH_S,
    ),
    DeviceKind(
        name="RTX-4090",
        tensor_flops_per_s=165.2e12,
        fp32_flops_per_s=82.6e12,
        memory_bandwidth=1.008e12,
        memory_bytes=24_000_000_000,
        matmul_fraction=0.85,
        bandwidth_fraction=0.88,
        launch_s=_LAUNCH_S,
    ),
    DeviceKind(
        name="RTX-3090",
        tensor_flops_per_s=71e12,
        fp32_flops_per_s=35.6e12,
        memory_bandwidth=0.936e12,
        memory_bytes=24_000_000_000,
        matmul_fraction=0.85,
        bandwidth_fraction=0.88,
        launch_s=_LAUNCH_S,
    ),
    DeviceKind(
        name="T4",
        tensor_flops_per_s=65e12,
        fp32_flops_per_s=8.1e12,
        memory_bandwidth=0.3e12,
        memory_bytes=16_000_000_000,
        matmul_fraction=0.45,
        bandwidth_fraction=0.80,
        launch_s=_LAUNCH_S,
    ),
    DeviceKind(
        name="L4",
        tensor_flops_per_s=121e12,
        fp32_flops_per_s=30.3e12,
        memory_bandwidth=0.3e12,
        memory_bytes=24_000_000_000,
        matmul_fraction=0.55,
        bandwidth_fraction=0.85,
        launch_s=_LAUNCH_S,
    ),
)

KINDS: Mapping[str, DeviceKind] = MappingProxyType({kind.name: kind for kind in _ALL})


_DRIVER_NAMES = {
    "H100": r"H100-80GB-HBM3",
    "A100-80": r"A100-(SXM4-80GB|80GB-PCIe)",
    "A100-40": r"A100-(SXM4|PCIE)-40GB",
    "V100-16": r"V100-SXM2-16GB",
    "RTX-4090": r"GeForce-RTX-4090",
    "RTX-3090": r"GeForce-RTX-3090",
    "T4": r"T4",
    "L4": r"L4",
}
"""What drivers call these kinds, behind the vendor or brand. A variant with another data sheet does not match."""
_PATTERNS = {kind: re.compile(rf"(NVIDIA-|Tesla-)?{name}", re.IGNORECASE) for kind, name in _DRIVER_NAMES.items()}


@lru_cache(maxsize=1024)
def canonical_kind(name: str) -> str:
    """Return the name of the data sheet for the name that a driver gives a device, or else that name without spaces.

    >>> canonical_kind("NVIDIA A100-SXM4-40GB"), canonical_kind("Tesla T4"), canonical_kind("NVIDIA H100 PCIe")
    ('A100-40', 'T4', 'NVIDIA-H100-PCIe')
    """
    joined = re.sub(r"[\s_]+", "-", name.strip())
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.fullmatch(joined)), joined)


def match_kind(name: str, kinds: Iterable[str]) -> str | None:
    """Return which of some kinds is the kind with this name, or None.

    >>> match_kind("A100-40", ["T4", "NVIDIA-A100-SXM4-40GB"])
    'NVIDIA-A100-SXM4-40GB'
    """
    known = tuple(kinds)
    if name in known:
        return name
    return next((kind for kind in known if canonical_kind(kind) == canonical_kind(name)), None)


def find_kind(name: str) -> DeviceKind | None:
    """Return the device kind with this name, or None if it has no data sheet here. A driver's name is known too.

    >>> kind = find_kind("T4")
    >>> kind.memory_bytes if kind else None
    16000000000
    >>> find_kind("abacus") is None
    True
    """
    return KINDS.get(canonical_kind(name))


def near_kinds(name: str) -> list[str]:
    """Return the most similar device kinds with data sheets, for a name without one.

    >>> near_kinds("T5"), near_kinds("A100"), near_kinds("abacus")
    (['T4'], ['A100-80', 'A100-40'], [])
    """
    return near_names(name, KINDS, most=2, cutoff=0.5)


def relative_speed(kind: str, reference: str) -> float | None:
    """Return the speed of `kind` over that of `reference` in matrix products, or None if either kind is unknown.

    The ratio is that of attainable tensor-core rates; memory-bound work differs by another ratio.

    >>> relative_speed("H100", "A100-40") > 2
    True
    >>> relative_speed("H100", "abacus") is None
    True
    """
    ours, theirs = find_kind(kind), find_kind(reference)
    if ours is None or theirs is None:
        return None
    return ours.matmul_rate() / theirs.matmul_rate()
