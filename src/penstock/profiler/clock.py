"""The clock of measured passes."""

import time

import torch

from penstock.device import synchronize


def seconds_now(device: torch.device) -> float:
    """Return the time after all work queued on the device has completed.

    For a CPU with one thread it is the CPU time of this process, since the passes neither wait nor use other threads:
    other work on the machine lengthens the wall time only.
    """
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return time.process_time()
    synchronize(device)
    return time.perf_counter()
