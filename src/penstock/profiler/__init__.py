"""Measuring a model: block times, runtime overhead, backward ratios. Everything here needs torch."""

from penstock.profiler.measurement import DEFAULT_SECONDS, measure
from penstock.profiler.profile_model import profile, with_overheads
from penstock.profiler.steadiness import Steadiness

__all__ = ["DEFAULT_SECONDS", "Steadiness", "measure", "profile", "with_overheads"]
