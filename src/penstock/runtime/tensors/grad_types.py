"""The type of a parameter's gradient, which may be wider than that of the parameter."""

import torch
from torch import Tensor


def grad_dtype(parameter: Tensor) -> torch.dtype:
    """Return the type in which the gradients of a parameter are accumulated."""
    dtype: torch.dtype | None = parameter.grad_dtype
    return parameter.dtype if dtype is None else dtype
