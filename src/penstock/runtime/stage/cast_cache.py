"""Parameters that autocast has cast, kept for all micro-batches of a step: one cast for each version of a weight.

Autocast keeps its own casts as long as its context lasts. Functions that defer weight gradients cast by themselves.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Key = tuple[int, torch.dtype]
_caches: list[dict[Key, tuple[Tensor, int, Tensor]]] = []
"""The open caches: by parameter and type, the parameter, its version and the cast. Threads of autograd use them too."""


@contextmanager
def keep_casts() -> Iterator[None]:
    """Within the context, casts of parameters are kept."""
    _caches.append({})
    try:
        yield
    finally:
        _caches.pop()


def cast_once(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a parameter, detached, in another type. A cast of the same version is used again."""
    if not _caches:
        return weight.detach().to(dtype)
    cache, key = _caches[-1], (id(weight), dtype)
    known = cache.get(key)
    if known is not None and known[0] is weight and known[1] == weight._version:
        return known[2]
    cast = weight.detach().to(dtype)
    cache[key] = (weight, weight._version, cast)
    return cast
