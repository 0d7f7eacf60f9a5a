"""Gradients of a trial, kept apart from those of training."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def separate_grads(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Clear the gradients of the parameters, and restore them on exit."""
    cleared = list(parameters)
    before = [parameter.grad for parameter in cleared]
    for parameter in cleared:
        parameter.grad = None
    try:
        yield cleared
    finally:
        for parameter, grad in zip(cleared, before, strict=True):
            parameter.grad = grad
