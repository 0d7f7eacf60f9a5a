"""Streams of a device."""

import torch

from penstock.device.selection import is_accelerator


def synchronize(device: torch.device) -> None:
    """Block until all work queued on a device has completed. The CPU runs its work at once."""
    if is_accelerator(device):
        torch.accelerator.synchronize(device)
