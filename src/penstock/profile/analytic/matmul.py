"""Matrix products and how much of a device their shape uses."""

from typing import Literal

import msgspec

from penstock.profile.data_sheets import DeviceKind
from penstock.profile.recipe import Precision

ALIGNED_BYTES = 16
TILE = 64
"""Rows and columns of the smallest tile that kernels for large products compute."""
SPLIT_DEPTH = 1024
"""Kernels split the summed dimension of products with few tiles into parts of about this depth."""

Role = Literal["weight", "activation", "fp32"]

_PRODUCT_BYTES: dict[Precision, int] = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4, "fp8": 1}


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a matrix product: `batch` products of (rows x depth) and (depth x columns)."""

    rows: int
    columns: int
    depth: int
    batch: int = 1
    contiguous: tuple[int, ...] = ()
    """Lengths of rows in memory, in elements."""
    role: Role = "weight"
    """Products of activations are in bf16 if those with weights are in fp8; those of role fp32 always are in fp32."""

    @property
    def flops(self) -> int:
        """Operations."""
        return 2 * self.batch * self.rows * self.columns * self.depth


def product_rate(product: Product, kind: DeviceKind, precision: Precision) -> float:
    """Return the operations per second of a product on a device.

    >>> from penstock.profile.device_kinds import KINDS
    >>> large = Product(rows=4096, columns=4096, depth=4096)
    >>> product_rate(large, KINDS["A100-80"], "bf16") / 1e12
    234.0
    >>> odd = Product(rows=4096, columns=50257, depth=4096, contiguous=(50257,))
    >>> product_rate(odd, KINDS["A100-80"], "bf16") < 100e12
    True
    """
    used = _precision(product.role, kind, precision)
    return kind.matmul_rate(used) * _shape_fraction(product, kind, used)


def _precision(role: Role, kind: DeviceKind, precision: Precision) -> Precision:
    if role == "fp32" and precision != "fp32":
        return "fp32" if kind.tf32_flops_per_s is None else "tf32"
    if role == "activation" and precision == "fp8":
        return "bf16"
    return precision


def _shape_fraction(product: Product, kind: DeviceKind, precision: Precision) -> float:
    if precision == "fp32":  # no tensor cores, smaller tiles
        return 1.0
    tiles_down, tiles_across = -(-product.rows // TILE), -(-product.columns // TILE)
    filled = product.rows * product.columns / (tiles_down * tiles_across * TILE * TILE)
    parts = max(1, product.depth // SPLIT_DEPTH)
    busy = min(1.0, product.batch * tiles_down * tiles_across * parts / kind.multiprocessors)
    elements = ALIGNED_BYTES // _PRODUCT_BYTES[precision]
    aligned = 1.0 if all(length % elements == 0 for length in product.contiguous) else kind.misaligned_fraction
    # A misaligned row length does not slow a product that is small for other reasons.
    return min(filled * busy, aligned)
