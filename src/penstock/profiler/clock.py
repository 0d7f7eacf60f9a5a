"""The clock of measured passes."""

import time

import torch

from penstock.device import DeviceClock, Mark, is_accelerator, synchronize


def seconds_now(device: torch.device) -> float:
    """Return the time after all work queued on the device has completed.

    For a CPU with one thread it is the CPU time of this process, since the passes neither wait nor use other threads:
    other work on the machine lengthens the wall time only.
    """
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return time.process_time()
    synchronize(device)
    return time.perf_counter()


def mark_now(device: torch.device) -> Mark:
    """Return a mark for `DeviceClock.seconds`: when an accelerator gets there, or `seconds_now` of a CPU."""
    return DeviceClock(device).mark() if is_accelerator(device) else seconds_now(device)
