"""Measurement of one device: its kind, the memory available to a process, and the rate of a matrix product."""

import os
import socket
import time
from pathlib import Path

import torch

from penstock.device import DeviceClock, device_kind_of, is_accelerator, total_memory_bytes
from penstock.probe.types import RankInfo

CPU_SIZE, GPU_SIZE = 384, 4096
KERNEL_S = 0.15


def describe_rank(rank: int, device: torch.device, host: str | None) -> RankInfo:
    """Describe the device of this rank. The host is `host` if specified, else the host name of the machine.

    Hosts that are emulated by network namespaces share a host name; the id of the namespace distinguishes them.
    """
    named = host or os.environ.get("PENSTOCK_HOST") or f"{socket.gethostname()}\0{_network_namespace()}"
    machine = "" if is_accelerator(device) else _boot_id() or named
    return RankInfo(
        rank=rank, host=named, kind=device_kind_of(device), memory_bytes=total_memory_bytes(device), machine=machine
    )


def measure_kernel(device: torch.device) -> float:
    """Return the operations per second of square matrix products: the best of many, since others may use the device."""
    is_gpu = is_accelerator(device)
    size = GPU_SIZE if is_gpu else CPU_SIZE
    matrix = torch.ones(size, size, dtype=torch.bfloat16 if is_gpu else torch.float32, device=device)
    clock, best_s = DeviceClock(device), float("inf")
    end_s = time.perf_counter() + KERNEL_S
    while time.perf_counter() < end_s:
        # The device's own time: that of a launch by the host is no part of it.
        marks = [clock.mark()]
        torch.mm(matrix, matrix)
        marks.append(clock.mark())
        start_s, stop_s = clock.seconds(marks)
        best_s = min(best_s, stop_s - start_s)
    return 2 * size**3 / best_s


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _network_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/net")  # noqa: PTH115 (what it names is no path)
    except OSError:
        return ""
