"""The identity of a device: its kind in profiles and clusters."""

import torch

from penstock.device.selection import is_accelerator
from penstock.profile import canonical_kind


def device_kind_of(device: torch.device) -> str:
    """Return the kind of a device.

    The kind of an accelerator is its name, or the name of its data sheet if there is one: A100-40 for
    NVIDIA-A100-SXM4-40GB. The kind of a CPU is its number of torch threads, as in cpu-1-thread.
    """
    if is_accelerator(device):
        read_name = getattr(torch.get_device_module(device.type), "get_device_name", None)
        return device.type if read_name is None else canonical_kind(read_name(device))
    threads = torch.get_num_threads()
    return f"cpu-{threads}-thread{'' if threads == 1 else 's'}"
