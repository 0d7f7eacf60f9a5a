"""Profiler: block times, runtime overhead and backward ratios of a model. Requires torch."""

from penstock.profiler.measurement import DEFAULT_SECONDS, find_chain, measure
from penstock.profiler.overhead_text import indistinct_parts
from penstock.profiler.profile_model import profile, with_overheads
from penstock.profiler.steadiness import Steadiness
from penstock.profiler.training_precision import in_precision

__all__ = [
    "DEFAULT_SECONDS",
    "Steadiness",
    "find_chain",
    "in_precision",
    "indistinct_parts",
    "measure",
    "profile",
    "with_overheads",
]
