"""The options of a pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from penstock.cluster import Cluster
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

    @property
    def meta_device(self) -> torch.device:
        """The device for a model on the meta device."""
        return torch.device("cpu" if self.device is None else self.device)

    @property
    def accepts_cpu(self) -> bool:
        """Whether the caller has chosen the CPU, whatever the plan is for."""
        return self.device is not None and torch.device(self.device).type == "cpu"
