"""Memory of a device."""

from dataclasses import dataclass
from pathlib import Path

import torch

from penstock.device.selection import is_accelerator


def total_memory_bytes(device: torch.device) -> int | None:
    """Return the memory of an accelerator, or the memory of the host that is available; None if it is unknown."""
    if is_accelerator(device):
        return int(torch.accelerator.get_memory_info(device)[1])
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else None


@dataclass(frozen=True)
class MemoryUse:
    """The memory that a process uses on an accelerator."""

    peak_bytes: int
    """The most that tensors have taken at a time."""
    reserved_bytes: int
    """The most that the allocator of torch has taken. What tensors do not fill is fragmentation."""
    outside_bytes: int
    """What others than the allocator take: the driver's context, communicators and libraries, and other processes."""
    total_bytes: int


def memory_use(device: torch.device) -> MemoryUse | None:
    """Return the memory in use on an accelerator; None on a CPU, whose allocator does not count."""
    if not is_accelerator(device):
        return None
    free, total = torch.accelerator.get_memory_info(device)
    return MemoryUse(
        int(torch.accelerator.max_memory_allocated(device)),
        int(torch.accelerator.max_memory_reserved(device)),
        max(0, int(total) - int(free) - int(torch.accelerator.memory_reserved(device))),
        int(total),
    )
