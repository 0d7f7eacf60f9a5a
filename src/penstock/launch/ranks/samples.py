"""Timelines of some steps of a training run, which rank 0 reports."""

from collections.abc import Callable
from typing import Any

from penstock.launch.runs import Event, Sampled

SAMPLE_EVERY_S = 0.5
"""Ranks collect a timeline about this often; it costs a few milliseconds."""
SAMPLE_EVERY_PART = 0.01
"""Minimum distance of two timelines as a fraction of the steps so far: all are kept, and a run may take weeks."""


def sample_timeline(pipe: Any, result: Any, report: Callable[[Event], None]) -> int:
    """Collect the timeline of a step. Returns the number of steps until the next one, the same on every rank."""
    import torch
    import torch.distributed as dist

    from penstock.dist import translate_errors
    from penstock.runtime import check_same_batch

    rank = dist.get_rank()
    step_s = torch.tensor([result.seconds], dtype=torch.float64)
    with translate_errors(lambda: f"rank {rank}, step {result.step}, comparing batches with other ranks"):
        check_same_batch(result.batch, result.step)
        dist.broadcast(step_s, 0)
    timeline = pipe.last_timeline()
    if timeline is not None:
        report(Sampled(result.step, tuple(timeline.start_s.tolist()), tuple(timeline.end_s.tolist())))
    return max(1, round(SAMPLE_EVERY_S / float(step_s)), int(SAMPLE_EVERY_PART * result.step))
