"""Streams of a device."""

from contextlib import AbstractContextManager, nullcontext

import torch

from penstock.device.selection import is_accelerator


def synchronize(device: torch.device) -> None:
    """Block until all work queued on a device has completed. The CPU runs its work at once."""
    if is_accelerator(device):
        torch.accelerator.synchronize(device)


def own_stream(device: torch.device) -> AbstractContextManager[object]:
    """Context in which the work of this thread goes to a stream of its own. The CPU has none."""
    return torch.Stream(device) if is_accelerator(device) else nullcontext()
