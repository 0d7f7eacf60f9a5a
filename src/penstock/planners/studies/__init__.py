"""Studies of a problem: ablation, baselines, device counts, micro-batches, memory advice."""

from penstock.planners.studies.ablation import EVERYTHING, SETTINGS, Ablation, AblationRow, Gain, Setting, ablate
from penstock.planners.studies.alternatives import TRIED, Alternative, next_best
from penstock.planners.studies.baselines import Entry, entries, ratios
from penstock.planners.studies.device_counts import DeviceChoice, DeviceCount, choose_devices, device_part, for_whole
from penstock.planners.studies.memory_advice import what_would_help
from penstock.planners.studies.microbatches import MicrobatchChoice, Size, choose_microbatches
from penstock.planners.studies.quick_planners import is_quick

__all__ = [
    "EVERYTHING",
    "SETTINGS",
    "TRIED",
    "Ablation",
    "AblationRow",
    "Alternative",
    "DeviceChoice",
    "DeviceCount",
    "Entry",
    "Gain",
    "MicrobatchChoice",
    "Setting",
    "Size",
    "ablate",
    "choose_devices",
    "choose_microbatches",
    "device_part",
    "entries",
    "for_whole",
    "is_quick",
    "next_best",
    "ratios",
    "what_would_help",
]
