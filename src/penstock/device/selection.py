"""Which device a process uses."""

import os

import torch

from penstock.device.backends import has_host_backend
from penstock.errors import InputError

AUTO = "auto"
"""The name of the host's accelerator, or of the CPU if there is none."""


def is_accelerator(device: torch.device) -> bool:
    """Return whether a device has memory and streams of its own."""
    return device.type not in ("cpu", "meta")


def find_accelerator() -> torch.device | None:
    """Return the type of this host's accelerators, or None if there is none that ranks can send from."""
    found = torch.accelerator.current_accelerator(check_available=True)
    is_host_backend = found is not None and has_host_backend(found)
    return None if is_host_backend else found


def select_device(name: str | None = None) -> torch.device:
    """Return the device of this process, and make it the current one.

    Args:
        name: "cpu", or the type of an accelerator, with or without an index: "cuda", "xpu:1". Without an index,
            LOCAL_RANK is the index, unless the process sees a single device. "auto" or None: an accelerator if there
            is one, else the CPU.

    Raises:
        InputError: There is no such device.
    """
    found = find_accelerator()
    device = (found or torch.device("cpu")) if name in (None, AUTO) else _parse(name)
    if device.type == "cpu":
        return torch.device("cpu")
    if found is None or found.type != device.type:
        raise InputError(
            f"torch finds no {device.type} device on this host",
            where="--device",
            hint=f"Use {'cpu' if found is None else f'{found.type} or cpu'}, or install torch for this device.",
        )
    count = torch.accelerator.device_count()
    index: int | None = device.index
    if index is None:
        # Some schedulers show each process one device, its own.
        index = 0 if count == 1 else int(os.environ.get("LOCAL_RANK", "0"))
    if index >= count:
        raise InputError(
            f"rank {os.environ.get('RANK', '0')} needs device {device.type}:{index}, but this host has {count}",
            where="--device",
            hint="Start one rank for each device, or plan for fewer devices on this host.",
        )
    torch.accelerator.set_device_index(index)
    return torch.device(device.type, index)


def _parse(name: str | None) -> torch.device:
    try:
        device = torch.device(str(name))
    except RuntimeError as error:
        hint = "Use cpu, auto, or a type such as cuda or xpu."
        raise InputError(f"{name!r} is not a device of torch", where="--device", hint=hint) from error
    return device
