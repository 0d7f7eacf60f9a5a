"""The options of a pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from penstock.cluster import Cluster
from penstock.device import select_device
from penstock.model import Activations
from penstock.profile import Profile
from penstock.runtime.state import Init

DEFAULT_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class PipelineOptions:
    """The keyword arguments of `penstock.Pipeline`, which documents them."""

    profile: Profile | None = None
    cluster: Cluster | None = None
    blocks: Sequence[str] | None = None
    inputs: Activations = None
    seed: int = 0
    timeout_s: float = DEFAULT_TIMEOUT_S
    check_finite: bool = False
    device: torch.device | str | None = None
    init: Init | None = None
    slices: str | Path | None = None
    any_kind: bool = False

    def select_device(self) -> torch.device | None:
        """Select the device that the caller has chosen; None: that of the model."""
        return None if self.device is None else select_device(str(self.device))

    @property
    def accepts_cpu(self) -> bool:
        """Whether the caller has chosen the CPU, whatever the plan is for."""
        return self.device is not None and str(self.device) == "cpu"
