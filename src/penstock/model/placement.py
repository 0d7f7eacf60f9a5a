"""Moving a model to a device or to another floating-point type."""

import torch
from torch import nn


def move_model(model: nn.Module, device: torch.device | None = None, dtype: torch.dtype | None = None) -> None:
    """Move the tensors of a model in place. Tensors on the meta device keep their device.

    Parameters that layers share stay shared. `nn.Module.to` makes new parameters for devices whose tensors torch cannot
    put into existing ones, one for each use.

    Args:
        model: The model.
        device: The device; None keeps it.
        dtype: The type of floating-point tensors; None keeps it.
    """
    uses: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                uses.setdefault(id(parameter), []).append((module, name))

    def move(tensor: torch.Tensor) -> torch.Tensor:
        kind = dtype if tensor.is_floating_point() else None
        return tensor.to(None if tensor.is_meta else device, kind)

    model._apply(move)  # type: ignore[no-untyped-call]
    for (first, name), *others in uses.values():
        for module, other_name in others:
            module._parameters[other_name] = first._parameters[name]
