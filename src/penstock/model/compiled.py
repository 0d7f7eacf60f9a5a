"""Modules that torch.compile has made other code of."""

from torch import nn


def is_compiled(module: nn.Module) -> bool:
    """Whether calls of it run that code, in which nothing is seen and both gradients are made at once."""
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules
