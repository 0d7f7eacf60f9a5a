"""Memory that was freed is kept for what comes next.

A pipeline frees and asks for the same large tensors, micro-batch after micro-batch. By default the C library gives
much of that back to the operating system, which hands it out again page by page, each filled with zeros first.
"""

import ctypes
import os

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""How the C library of GNU calls these settings."""
NEVER = (1 << 31) - 1
LARGEST = 1 << 30
CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_freed_memory() -> bool:
    """Tell the C library to keep freed memory in this process. Whether it does.

    Nothing is changed if the environment has settings of its own, or where there is another C library.
    """
    if any(name in os.environ for name in CHOSEN) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        set_option = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(set_option(MMAP_THRESHOLD, LARGEST)) and bool(set_option(TRIM_THRESHOLD, NEVER))
