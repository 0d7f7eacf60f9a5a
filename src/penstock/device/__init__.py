"""The devices of torch. All code that depends on the type of a device is here. Requires torch.

Every type but the CPU is an *accelerator* and is used through `torch.accelerator` and `torch.get_device_module`. CUDA,
ROCm, XPU and devices that other packages register run the same lines.
"""

from penstock.device.backends import TAGGED_BACKEND, backend_for, group_backend, is_tagged
from penstock.device.clock import DeviceClock, Mark
from penstock.device.copies import HostCopy, copy_to_device
from penstock.device.float32 import float32_products
from penstock.device.generators import default_generators, preserve_rng_states
from penstock.device.hardware_queues import warn_of_one_queue
from penstock.device.identity import DeviceIdentity, device_kind_of, identify
from penstock.device.memory import MemoryUse, memory_use, total_memory_bytes
from penstock.device.run_ahead import RunAhead
from penstock.device.selection import find_accelerator, is_accelerator, select_device
from penstock.device.settings import SETTINGS
from penstock.device.streams import own_stream, synchronize

__all__ = [
    "SETTINGS",
    "TAGGED_BACKEND",
    "DeviceClock",
    "DeviceIdentity",
    "HostCopy",
    "Mark",
    "MemoryUse",
    "RunAhead",
    "backend_for",
    "copy_to_device",
    "default_generators",
    "device_kind_of",
    "find_accelerator",
    "float32_products",
    "group_backend",
    "identify",
    "is_accelerator",
    "is_tagged",
    "memory_use",
    "own_stream",
    "preserve_rng_states",
    "select_device",
    "synchronize",
    "total_memory_bytes",
    "warn_of_one_queue",
]
