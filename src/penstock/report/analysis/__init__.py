"""The numbers behind a report: gaps, bottlenecks, waits, phases, what-if."""

from penstock.report.analysis.baselines import Baseline, evaluate_baselines
from penstock.report.analysis.bottleneck import bottleneck_sentences
from penstock.report.analysis.device_time import TimeUse, time_use
from penstock.report.analysis.gaps import find_gaps
from penstock.report.analysis.memory_steps import memory_strip
from penstock.report.analysis.pipeline_phases import phases
from penstock.report.analysis.summation_order import reordered_sums
from penstock.report.analysis.tight_memory import TightMemory, find_tight_memory, tight_memory_sentences
from penstock.report.analysis.timeline_validation import validate_timeline
from penstock.report.analysis.waits import group_waits
from penstock.report.analysis.what_if import Improvement, find_improvements, improvement_sentences

__all__ = [
    "Baseline",
    "Improvement",
    "TightMemory",
    "TimeUse",
    "bottleneck_sentences",
    "evaluate_baselines",
    "find_gaps",
    "find_improvements",
    "find_tight_memory",
    "group_waits",
    "improvement_sentences",
    "memory_strip",
    "phases",
    "reordered_sums",
    "tight_memory_sentences",
    "time_use",
    "validate_timeline",
]
