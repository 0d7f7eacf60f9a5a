"""Training runs of ranks on the test device."""

from collections.abc import Sequence
from functools import partial
from unittest import mock

import torch

from penstock.runtime.pipeline import Pipeline
from tests.support.late_device.device import HostWait, Settings, take_host_waits
from tests.support.late_device.mutations import Mutation
from tests.support.late_device.ranks import checked_device
from tests.support.runtime import training
from tests.support.runtime.models import KINDS
from tests.support.runtime.training import Job, Trained, batch, model_of, train

TIMEOUT_S = 15


def train_on_device(jobs: Sequence[tuple[Job, Settings]]) -> list[Trained]:
    """Train one rank in several runs. Raise if work on the device was not ordered."""
    results = []
    for job, settings in jobs:
        with checked_device(settings):
            results.append(train(job))
    return results


def train_mutated(job: Job, settings: Settings, mutation: Mutation) -> Trained:
    """Train one rank by a runtime with a fault. Raise if work on the device was not ordered."""

    def make_pipeline(*arguments: object, **options: object) -> Pipeline:
        return Pipeline(*arguments, **{**options, "timeout_s": TIMEOUT_S})  # type: ignore[arg-type]

    with checked_device(settings), mutation(), mock.patch.object(training, "Pipeline", make_pipeline):
        return train(job)


def steady_waits(job: Job, settings: Settings, mutation: Mutation) -> list[HostWait]:
    """Return the times that the main thread waits for the device in the third step of one rank."""
    with checked_device(settings), mutation():
        with torch.device(job.device):
            model = model_of(job)
        pipe = Pipeline(model, job.plan, KINDS[job.kind].loss, profile=job.profile, cluster=job.cluster)
        optimizer = pipe.optimizer(partial(torch.optim.SGD, lr=0.1))
        waits: list[HostWait] = []
        for step in range(3):
            optimizer.zero_grad()
            inputs, targets = batch(job, step)
            take_host_waits()
            pipe.step(inputs, targets)
            waits = [wait for wait in take_host_waits() if wait.is_main_thread]
            optimizer.step()
        pipe.close()
        return waits
