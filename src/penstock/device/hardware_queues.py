"""Hardware queues: how many streams of a device can run beside each other."""

import logging
import os
from functools import cache

import torch

_log = logging.getLogger(__name__)
_SETTING = "CUDA_DEVICE_MAX_CONNECTIONS"


@cache
def warn_of_one_queue(device: torch.device) -> None:
    """Warn, once for each device, if the environment leaves it one hardware queue, as is common with Megatron."""
    if device.type == "cuda" and os.environ.get(_SETTING) == "1":
        _log.warning(
            "%s=1: all streams of %s share one hardware queue. Programs run to the end, but messages and compute "
            "actions wait for each other in the queue. Unset it, or set it to 8 or more.",
            _SETTING,
            device,
        )
