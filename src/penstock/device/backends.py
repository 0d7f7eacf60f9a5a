"""Backends of torch.distributed by device."""

import torch
import torch.distributed as dist

from penstock.errors import InputError

TAGGED_BACKEND = "gloo"


def backend_for(device: torch.device) -> str:
    """Return the backend for tensors of a device: gloo for the CPU, nccl for CUDA and ROCm, xccl for XPU.

    Raises:
        InputError: No backend is registered for the device.
    """
    try:
        return dist.get_default_backend_for_device(device)
    except ValueError:
        raise InputError(
            f"torch.distributed has no backend for {device.type}", hint="Use another device, such as cpu."
        ) from None


def group_backend(device: torch.device) -> str:
    """Return the argument of `init_process_group` for ranks that send from a device, and objects from the host.

    >>> group_backend(torch.device("cpu"))
    'gloo'
    """
    if device.type == "cpu":
        return TAGGED_BACKEND
    return f"cpu:{TAGGED_BACKEND},{device.type}:{backend_for(device)}"


def has_host_backend(device: torch.device) -> bool:
    """Return whether the backend of a device sends through host memory."""
    return dist.Backend.default_device_backend_map.get(device.type) == TAGGED_BACKEND


def is_tagged(backend: str) -> bool:
    """Return whether a backend matches messages by tag. The others match them by order."""
    return backend == TAGGED_BACKEND
