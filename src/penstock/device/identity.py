"""The identity of a device: its host, index, UUID and kind."""

import socket
from dataclasses import dataclass

import torch

from penstock.device.selection import is_accelerator
from penstock.profile import canonical_kind


@dataclass(frozen=True)
class DeviceIdentity:
    """What a rank reports about its device."""

    host: str
    type: str
    """"cpu", "cuda", ..."""
    index: int
    """Index of the device on its host, as this process counts; 0 for a CPU."""
    uuid: str
    """Identifier of the device itself; empty if it has none."""
    kind: str

    @property
    def is_cpu(self) -> bool:
        """Whether the device is the CPU of the host, which several ranks may share."""
        return self.type == "cpu"


def identify(device: torch.device) -> DeviceIdentity:
    """Return the identity of a device of this process.

    >>> identify(torch.device("cpu")).is_cpu
    True
    """
    host, kind = socket.gethostname(), device_kind_of(device)
    if not is_accelerator(device):
        return DeviceIdentity(host, "cpu", 0, "", kind)
    index = torch.accelerator.current_device_index() if device.index is None else device.index
    read_properties = getattr(torch.get_device_module(device.type), "get_device_properties", None)
    properties = None if read_properties is None else read_properties(index)
    return DeviceIdentity(host, device.type, index, str(getattr(properties, "uuid", "")), kind)


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
