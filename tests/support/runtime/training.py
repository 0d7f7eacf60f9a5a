"""Training by a plan on the ranks of a world, and the same in one process."""

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
from penstock.runtime.verify.reference import reference_step
from tests.support.runtime.models import KINDS

NUM_STEPS = 5
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Job:
    """What is trained."""

    kind: str
    plan: Plan
    profile: Profile | None
    cluster: Cluster | None
    num_rows: tuple[int, ...] = (13,)
    """Rows of a batch, step after step, over and over."""
    double: bool = False
    bf16: bool = False


@dataclass
class Trained:
    """What came of it."""

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
    """One rank's part."""
    model = model_of(job)
    pipe = Pipeline(model, job.plan, KINDS[job.kind].loss, profile=job.profile, cluster=job.cluster, timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=LEARNING_RATE)
    losses = []
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=job.bf16):
            losses.append(pipe.step(*batch(job, step)))
        optimizer.step()
    pipe.close()
    parameters = {name: item.detach() for name, item in pipe.named_parameters().items()}
    return Trained(losses, parameters, dict(pipe.named_buffers()), pipe.mechanisms())


def train_all(jobs: Sequence[Job]) -> list[Trained]:
    """One rank's part of several trainings, one after the other."""
    return [train(job) for job in jobs]


def train_alone(job: Job) -> Trained:
    """The same in one process."""
    model = model_of(job)
    blocks = find_blocks(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=job.bf16):
            found = reference_step(
                model, blocks, job.plan.num_microbatches, KINDS[job.kind].loss, *batch(job, step), step=step
            )
        losses.append(found)
        optimizer.step()
    parameters = {name: item.detach() for name, item in model.named_parameters()}
    return Trained(losses, parameters, dict(model.named_buffers()))
