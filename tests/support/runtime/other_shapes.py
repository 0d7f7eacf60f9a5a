"""A small model trained by a plan with its profile, as functions that ranks can run."""

import warnings
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from penstock.cluster.types import Cluster
from penstock.errors import MismatchError, ProfileWarning
from penstock.plan.types import Plan
from penstock.profile.types import Profile
from penstock.runtime.pipeline import Pipeline
from tests.support.runtime.user_models import mean_square

Shape = tuple[int, ...]


def make_model(width: int = 16) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Linear(width, 2))


def loss(out: Tensor, targets: Tensor) -> Tensor:
    return mean_square(out.flatten(1), targets)


def train(
    profile: Profile, cluster: Cluster, plan: Plan, dtype: torch.dtype, shapes: Sequence[Shape], bf16: bool
) -> tuple[list[str], list[Tensor]]:
    """The warnings and losses of a rank."""
    pipe = Pipeline(make_model().to(dtype), plan, loss, profile=profile, cluster=cluster)
    losses = []
    with warnings.catch_warnings(record=True) as seen, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        warnings.simplefilter("always")
        for shape in shapes:
            losses.append(pipe.step(torch.ones(shape, dtype=dtype), torch.zeros(shape[0], dtype=dtype)))
    pipe.close()
    assert all(item.category is ProfileWarning for item in seen)
    return [str(item.message) for item in seen], losses


def refusal(plan: Plan, width: int) -> str:
    """The error of a pipeline for a model of another width, without the profile of the plan."""
    with pytest.raises(MismatchError) as caught:
        Pipeline(make_model(width), plan, loss)
    return str(caught.value)
