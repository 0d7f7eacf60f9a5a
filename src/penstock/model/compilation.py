"""Detection of modules that torch.compile has compiled."""

from torch import nn

from penstock.errors import InputError


def is_compiled(module: nn.Module) -> bool:
    """Return whether calls of the module run compiled code, which is opaque and computes both gradients at once."""
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules


def require_own_forward(model: nn.Module) -> None:
    """Check that the model as a whole is not compiled: a compiled forward cannot be split.

    Raises:
        InputError: It is.
    """
    if not is_compiled(model):
        return
    own = model._modules.get("_orig_mod") or model
    names = [name for name, module in own.named_modules() if isinstance(module, nn.ModuleList) and len(module)]
    layers = f"model.{names[0]}" if names else "model.children()"
    raise InputError(
        f"{type(own).__name__} is compiled as a whole (torch.compile), so its forward cannot be split into layers",
        hint=f"Compile the layers instead, and pass the model itself: for layer in {layers}: layer.compile()",
    )
