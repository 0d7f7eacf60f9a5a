"""The device of a rank, and moving the script's model there."""

from typing import TYPE_CHECKING

from penstock.bundle import PlanBundle
from penstock.profile import find_kind

if TYPE_CHECKING:
    import torch
    from torch import nn


def place_model(model: "nn.Module", requested: str | None, bundle: PlanBundle) -> "torch.device":
    """Move a model to the device of this rank, and return the device.

    A model on the meta device stays there; it is filled on the device later.

    Args:
        model: The model, as the script has made it.
        requested: The device that the user names. None: the accelerator on which the script has put the model, or for
            which the plan is made, if the host has one; else the CPU.
        bundle: The plan and its cluster.
    """
    import torch

    from penstock.device import find_accelerator, is_accelerator, select_device
    from penstock.model import move_model

    own = next((item.device for item in model.parameters() if not item.is_meta), None)
    if requested is None and own is not None and is_accelerator(own):
        return own
    if requested is not None:
        device = select_device(requested)
    elif find_accelerator() is not None and is_for_accelerators(bundle):
        device = select_device()
    else:
        device = torch.device("cpu")
    if own is not None and own != device:
        move_model(model, device)
    return device


def is_for_accelerators(bundle: PlanBundle) -> bool:
    """Return whether a device of the plan has a data sheet, which only accelerators have."""
    used = [item for item in bundle.cluster.devices if item.name in bundle.plan.devices]
    return any(find_kind(item.kind) is not None for item in used)
