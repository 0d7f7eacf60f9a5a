"""Training by a plan on several ranks, and by the plain reference in a single process."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from penstock.cluster.types import Cluster
from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.profile.types import Profile
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.verify.single_process import SingleProcess
from tests.support.runtime.models import KINDS

NUM_STEPS = 5
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Job:
    """A training run."""

    kind: str
    plan: Plan
    profile: Profile | None
    cluster: Cluster | None
    num_rows: tuple[int, ...] = (13,)
    """Rows of the batch of each step, repeated."""
    double: bool = False
    precision: str | None = None
    device: str = "cpu"
    """The device of the ranks."""


@dataclass
class Trained:
    """The result of a training run on one rank."""

    losses: list[Tensor]
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    mechanisms: dict[int, str] = field(default_factory=dict)


def batch(job: Job, step: int) -> tuple[Any, Any]:
    x, targets = KINDS[job.kind].batch(step, job.num_rows[step % len(job.num_rows)])
    return (x.double() if job.double and x.is_floating_point() else x), targets


def model_of(job: Job) -> torch.nn.Sequential:
    model = KINDS[job.kind].model()
    return model.double() if job.double else model


def train(job: Job) -> Trained:
    """Train one rank."""
    with torch.device(job.device):  # moving a model with tied parameters to another device may untie them
        model = model_of(job)
    pipe = Pipeline(
        model,
        job.plan,
        KINDS[job.kind].loss,
        profile=job.profile,
        cluster=job.cluster,
        timeout_s=60,
        precision=job.precision,
    )
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=LEARNING_RATE)
    losses = []
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        losses.append(pipe.step(*batch(job, step)).cpu())
        optimizer.step()
    pipe.close()
    parameters = {name: item.detach().cpu() for name, item in pipe.named_parameters().items()}
    buffers = {name: item.cpu() for name, item in pipe.named_buffers().items()}
    return Trained(losses, parameters, buffers, pipe.mechanisms())


def train_all(jobs: Sequence[Job]) -> list[Trained]:
    """Train one rank in several runs, one after the other."""
    return [train(job) for job in jobs]


def train_single_process(job: Job) -> Trained:
    """The same training in a single process, by the model's own forward and plain autograd."""
    model = model_of(job)
    trainer = SingleProcess(
        model, find_blocks(model), job.plan.num_microbatches, KINDS[job.kind].loss, precision=job.precision
    )
    optimizer = trainer.optimizer(torch.optim.AdamW, lr=LEARNING_RATE)
    losses = []
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        losses.append(trainer.step(*batch(job, step)))
        optimizer.step()
    parameters = {name: item.detach() for name, item in trainer.named_parameters().items()}
    return Trained(losses, parameters, dict(model.named_buffers()))
