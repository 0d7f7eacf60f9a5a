"""A device of torch that works asynchronously on a CPU, and a process group with the rules of NCCL. For tests.

`load` makes the device `late` and the backend `strict` known to torch in this process. Operators return before they
have run. Streams, events, memory and messages have the semantics of GPUs. See docs/internals/test-device.md.
"""

from tests.support.late_device.device import (
    NAME,
    PACES,
    HostWait,
    Pace,
    Settings,
    configure,
    is_loaded,
    load,
    take_host_waits,
    take_inference_failures,
    take_races,
)

__all__ = [
    "NAME",
    "PACES",
    "HostWait",
    "Pace",
    "Settings",
    "configure",
    "is_loaded",
    "load",
    "take_host_waits",
    "take_inference_failures",
    "take_races",
]
