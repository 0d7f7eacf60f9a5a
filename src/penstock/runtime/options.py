"""The options of a pipeline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from penstock.cluster import Cluster
from penstock.device import select_device
from penstock.errors import InputError
from penstock.model import Activations
from penstock.profile import Profile, TrainingPrecision, find_precision
from penstock.runtime.state import Init

DEFAULT_TIMEOUT_S = 120.0
DEFAULT_CHECKPOINT_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class PipelineOptions:
    """The keyword arguments of `penstock.Pipeline`, which documents them."""

    profile: Profile | None = None
    cluster: Cluster | None = None
    blocks: Sequence[str] | None = None
    inputs: Activations = None
    seed: int = 0
    timeout_s: float = DEFAULT_TIMEOUT_S
    checkpoint_timeout_s: float = DEFAULT_CHECKPOINT_TIMEOUT_S
    check_finite: bool = False
    device: torch.device | str | None = None
    init: Init | None = None
    slices: str | Path | None = None
    any_kind: bool = False
    precision: str | None = None
    loss_scale: float | None = None

    @property
    def training_precision(self) -> TrainingPrecision | None:
        """The precision; None: the model computes as it is.

        Raises:
            InputError: There is no such precision, or it does not scale the loss.
        """
        precision = None if self.precision is None else find_precision(self.precision)
        if self.loss_scale is not None:
            _check_loss_scale(self.loss_scale, precision)
        return precision

    def select_device(self) -> torch.device | None:
        """Select the device that the caller has chosen; None: that of the model."""
        return None if self.device is None else select_device(str(self.device))

    @property
    def accepts_cpu(self) -> bool:
        """Whether the caller has chosen the CPU, whatever the plan is for."""
        return self.device is not None and str(self.device) == "cpu"


def _check_loss_scale(scale: float, precision: TrainingPrecision | None) -> None:
    if precision is None or not precision.scales_loss:
        name = "none" if precision is None else precision.name
        raise InputError(
            f"loss_scale is set, but precision ({name}) does not scale the loss",
            hint="Leave it out, or use fp16 or fp16-mixed.",
        )
    if not 0 < scale < math.inf or math.frexp(scale)[0] != 0.5:
        raise InputError(f"loss_scale ({scale:g}) must be a power of two", hint="Use 65536, or another one.")
