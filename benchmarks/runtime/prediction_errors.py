"""Differences between a measured and a predicted iteration, by kind of action and in idle time."""

import numpy as np

from penstock import Kind, Timeline, device_uses

JOBS = {"forward": Kind.F, "again": Kind.R, "I": Kind.I, "W": Kind.W, "B": Kind.B, "step": Kind.STEP}


def explain(predicted: Timeline, measured: Timeline) -> str:
    """Seconds over all ranks, predicted and measured."""
    words = []
    for name, kind in JOBS.items():
        before, now = _seconds(predicted, kind), _seconds(measured, kind)
        if before or now:
            ratio = f"{now / before - 1:+.0%}" if before else "not predicted"
            words.append(f"{name} {before:.3f} -> {now:.3f} s ({ratio})")
    idle = [sum(use.bubble_s for use in device_uses(timeline)) for timeline in (predicted, measured)]
    words.append(f"idle {idle[0]:.3f} -> {idle[1]:.3f} s")
    return ", ".join(words)


def _seconds(timeline: Timeline, kind: Kind) -> float:
    rows = np.flatnonzero(timeline.program.kind == kind)
    return float((timeline.end_s[rows] - timeline.start_s[rows]).sum())
