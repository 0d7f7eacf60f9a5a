"""Device kinds with known data sheets, and the fraction of the peak that real kernels reach."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from penstock.names import near_names
from penstock.profile.data_sheets import DATA_SHEETS, DeviceKind

KINDS: Mapping[str, DeviceKind] = MappingProxyType({kind.name: kind for kind in DATA_SHEETS})


_DRIVER_NAMES = {
    "H100": r"H100-80GB-HBM3",
    "A100-80": r"A100-(SXM4-80GB|80GB-PCIe)",
    "A100-40": r"A100-(SXM4|PCIE)-40GB",
    "V100-16": r"V100-SXM2-16GB",
    "RTX-4090": r"GeForce-RTX-4090",
    "RTX-3090": r"GeForce-RTX-3090",
    "T4": r"T4",
    "L4": r"L4",
    "H200": r"H200",
    "GH200": r"GH200-480GB",
    "B200": r"B200",
    "MI300X": r"(AMD-)?(Instinct-)?MI300X(-OAM)?",
    "L40S": r"L40S",
    "A10": r"A10",
    "RTX-2080Ti": r"GeForce-RTX-2080-Ti",
    "Titan-RTX": r"TITAN-RTX",
    "RTX-5090": r"GeForce-RTX-5090",
}
"""What drivers call these kinds, behind the vendor or brand. A variant with another data sheet does not match."""
_GROUP = re.compile(r"(.+)\*(\d+)")
_PATTERNS = {kind: re.compile(rf"(NVIDIA-|Tesla-)?{name}", re.IGNORECASE) for kind, name in _DRIVER_NAMES.items()}


def group_kind(kind: str, count: int) -> str:
    """Return the kind of a device that is a group of GPUs, which share every layer.

    >>> group_kind("A100-40", 4), group_kind("A100-40", 1)
    ('A100-40*4', 'A100-40')
    """
    return f"{kind}*{count}" if count > 1 else kind


def group_size(kind: str) -> int:
    """Return the number of GPUs of a device of this kind.

    >>> group_size("A100-40*4"), group_size("A100-40")
    (4, 1)
    """
    group = _GROUP.fullmatch(kind)
    return int(group[2]) if group else 1


@lru_cache(maxsize=1024)
def canonical_kind(name: str) -> str:
    """Return the name of the data sheet for the name that a driver gives a device, or else that name without spaces.

    >>> canonical_kind("NVIDIA A100-SXM4-40GB"), canonical_kind("Tesla T4"), canonical_kind("NVIDIA H100 PCIe")
    ('A100-40', 'T4', 'NVIDIA-H100-PCIe')
    """
    joined = re.sub(r"[\s_]+", "-", name.strip())
    group = _GROUP.fullmatch(joined)
    if group:
        return group_kind(canonical_kind(group[1]), int(group[2]))
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

    For a group of GPUs it is the kind of one of them.

    >>> kind = find_kind("T4")
    >>> kind.memory_bytes if kind else None
    16000000000
    >>> find_kind("abacus") is None
    True
    """
    canonical = canonical_kind(name)
    group = _GROUP.fullmatch(canonical)
    return KINDS.get(group[1] if group else canonical)


def near_kinds(name: str) -> list[str]:
    """Return the most similar device kinds with data sheets, for a name without one.

    >>> near_kinds("T5"), near_kinds("A100"), near_kinds("abacus")
    (['T4'], ['A100-80', 'A100-40'], [])
    """
    return near_names(name, KINDS, most=2, cutoff=0.5)


def relative_speed(kind: str, reference: str) -> float | None:
    """Return the speed of `kind` over that of `reference` in matrix products, or None if either kind is unknown.

    Groups of different numbers of GPUs have no ratio. The ratio is that of attainable tensor-core rates; memory-bound
    work differs by another ratio.

    >>> relative_speed("H100", "A100-40") > 2
    True
    >>> relative_speed("H100", "abacus") is None
    True
    """
    ours, theirs = find_kind(kind), find_kind(reference)
    if ours is None or theirs is None or group_size(kind) != group_size(reference):
        return None
    return ours.matmul_rate() / theirs.matmul_rate()
