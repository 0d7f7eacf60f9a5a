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
    device: torch.device | str = "cpu"
    init: Init | None = None
    slices: str | Path | None = None
