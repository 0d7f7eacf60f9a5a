"""Detection of modules that torch.compile has compiled."""

from torch import nn


def is_compiled(module: nn.Module) -> bool:
    """Return whether calls of the module run compiled code, which is opaque and computes both gradients at once."""
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules
