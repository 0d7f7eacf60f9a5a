"""The numbers behind a report: gaps, bottlenecks, waits, phases, what-if."""

from penstock.report.analysis.baselines import Baseline, baselines
from penstock.report.analysis.bottleneck import bottleneck_sentences
from penstock.report.analysis.device_time import TimeUse, time_use
from penstock.report.analysis.gaps import find_gaps
from penstock.report.analysis.memory_steps import memory_strip
from penstock.report.analysis.pipeline_phases import phases
from penstock.report.analysis.rounding import changed_sums
from penstock.report.analysis.timeline_checks import check_showable
from penstock.report.analysis.waits import grouped_waits
from penstock.report.analysis.what_if import Help, help_sentences, what_would_help

__all__ = [
    "Baseline",
    "Help",
    "TimeUse",
    "baselines",
    "bottleneck_sentences",
    "changed_sums",
    "check_showable",
    "find_gaps",
    "grouped_waits",
    "help_sentences",
    "memory_strip",
    "phases",
    "time_use",
    "what_would_help",
]
