"""Memory of a device."""

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
