"""The measured overhead of the runtime as text. Its parts are never zero: where one is, the noise was larger."""

from penstock.profile import Overhead
from penstock.units import show_percent, show_seconds

RESOLUTION_S = 1e-6
"""Smaller seconds per action, message or MB are rounding errors of the measurement."""
RATIO_RESOLUTION = 5e-4


def describe_overhead(overhead: Overhead) -> str:
    """Return the parts of an overhead, each with its figure or the remark that it is below the noise.

    Example:
        >>> describe_overhead(Overhead(kind="cpu-1-thread", job_s=2e-4, message_s=0.0, byte_s=3e-10)).split("; ")[1]
        'not distinguishable from noise per message sent or received, assumed none'
    """
    texts = [
        (overhead.job_s / RESOLUTION_S, show_seconds(overhead.job_s), "per action"),
        (overhead.message_s / RESOLUTION_S, show_seconds(overhead.message_s), "per message sent or received"),
        (overhead.byte_s * 1e6 / RESOLUTION_S, show_seconds(overhead.byte_s * 1e6), "per MB sent"),
        (
            overhead.split_ratio / RATIO_RESOLUTION,
            show_percent(overhead.split_ratio),
            "of a fused backward for a split one",
        ),
        (
            overhead.remote_ratio / RATIO_RESOLUTION,
            show_percent(overhead.remote_ratio),
            "of a forward and its backward on one device for a remote backward",
        ),
    ]
    return "; ".join(
        f"{text} {name}" if value >= 1 else f"not distinguishable from noise {name}, assumed none"
        for value, text, name in texts
    )


def indistinct_parts(overhead: Overhead) -> list[str]:
    """Return the parts for which the measurement found no overhead above the noise.

    Example:
        >>> indistinct_parts(Overhead(kind="cpu-1-thread", job_s=0.0, message_s=1e-4, byte_s=0.0))
        ['per action', 'per byte sent']
    """
    parts = {"per action": overhead.job_s, "per message": overhead.message_s, "per byte sent": overhead.byte_s * 1e6}
    return [name for name, value in parts.items() if value < RESOLUTION_S]
