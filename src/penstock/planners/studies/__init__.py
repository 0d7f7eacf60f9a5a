"""Studies that answer questions about a problem: ablation, baselines, device counts, micro-batches, memory advice."""

from penstock.planners.studies.ablation import EVERYTHING, SETTINGS, Ablation, AblationRow, Gain, Setting, ablate
from penstock.planners.studies.alternatives import ALTERNATIVE_PLANNERS, Alternative, next_best
from penstock.planners.studies.baselines import Entry, compare_planners, iteration_ratios
from penstock.planners.studies.device_counts import (
    DeviceChoice,
    DeviceCount,
    choose_devices,
    retarget_to_cluster,
    select_cluster,
)
from penstock.planners.studies.losses import Loss, plan_without, single_losses
from penstock.planners.studies.memory_advice import advise_on_memory
from penstock.planners.studies.microbatches import MicrobatchChoice, Size, choose_microbatches
from penstock.planners.studies.quick_planners import is_quick

__all__ = [
    "ALTERNATIVE_PLANNERS",
    "EVERYTHING",
    "SETTINGS",
    "Ablation",
    "AblationRow",
    "Alternative",
    "DeviceChoice",
    "DeviceCount",
    "Entry",
    "Gain",
    "Loss",
    "MicrobatchChoice",
    "Setting",
    "Size",
    "ablate",
    "advise_on_memory",
    "choose_devices",
    "choose_microbatches",
    "compare_planners",
    "is_quick",
    "iteration_ratios",
    "next_best",
    "plan_without",
    "retarget_to_cluster",
    "select_cluster",
    "single_losses",
]
