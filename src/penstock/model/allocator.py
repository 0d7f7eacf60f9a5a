"""Allocator settings that keep freed CPU memory in the process.

A pipeline frees and allocates the same large tensors for every micro-batch. By default the C library returns much of
that memory to the operating system, which zeroes every page before it hands it out again.
"""

import ctypes
import os
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
NEVER = (1 << 31) - 1
LARGEST = 1 << 30
USER_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_freed_memory() -> bool:
    """Set the C library to keep freed memory in this process.

    Settings in the environment take precedence. Other C libraries than glibc are not changed.

    Returns:
        Whether the setting was applied.
    """
    if any(name in os.environ for name in USER_SETTINGS) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        set_option = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(set_option(MMAP_THRESHOLD, LARGEST)) and bool(set_option(TRIM_THRESHOLD, NEVER))


def return_freed_memory() -> None:
    """Return freed memory to the operating system, where the C library is glibc."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
