"""How accelerators multiply matrices of float32."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

EXACT, ROUNDED = "ieee", "tf32"


@contextmanager
def float32_products(*, allow_tf32: bool) -> Iterator[None]:
    """Within the context, products and convolutions of float32 round their operands to TF32, or do not.

    The settings of torch for other types, and those of the CPU, do not change.
    """
    libraries: Any = torch.backends
    backends = (libraries.cuda.matmul, libraries.cudnn.conv, libraries.cudnn.rnn)
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = ROUNDED if allow_tf32 else EXACT
        yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.fp32_precision = value
