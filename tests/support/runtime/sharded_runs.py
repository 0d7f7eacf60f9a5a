"""Training with sharded optimizers, as functions that ranks can run."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from tests.support.runtime.models import KINDS


def sharded(plan: Plan) -> Plan:
    """The same plan, with a sharded optimizer wherever there can be one."""
    stages = (msgspec.structs.replace(stage, sharded_optimizer=stage.can_shard_optimizer) for stage in plan.stages)
    return msgspec.structs.replace(plan, stages=tuple(stages))


class Trained(NamedTuple):
    """The results of one rank."""

    losses: list[Tensor]
    norms: list[Tensor]
    parameters: dict[str, Tensor]
    slices: dict[str, tuple[int, int]]
    num_states: int
    """Elements of the optimizer's moments."""
    num_trained: int
    """Elements of the parameters that the rank trains."""


class Run(NamedTuple):
    """One run, from a checkpoint if there is a folder to load."""

    kind: str
    plan: Plan
    optimizer: str = "AdamW"
    precision: str | None = None
    save: Path | None = None
    load: Path | None = None


def train_all(runs: list[Run]) -> list[Trained]:
    return [train(run) for run in runs]


def train(run: Run) -> Trained:
    """Four optimizer steps of two batches each, with clipping; a checkpoint after two of them."""
    kind = KINDS[run.kind]
    pipe = Pipeline(kind.model(), run.plan, kind.loss, precision=run.precision, timeout_s=60)
    form: dict[str, Any] = {"momentum": 0.9, "lr": 1e-2} if run.optimizer == "SGD" else {"lr": 1e-2}
    optimizer = pipe.optimizer(getattr(torch.optim, run.optimizer), **form)
    first = 0 if run.load is None else pipe.load(run.load).step // 2
    losses, norms = [], []
    for step in range(first, 4):
        optimizer.zero_grad()
        losses += [pipe.step(*kind.batch(2 * step + number, 12)) for number in range(2)]
        norms.append(pipe.clip_grad_norm(0.05))
        optimizer.step()
        if run.save is not None and step == 1:
            pipe.start_save(run.save)
    pipe.finish_save()
    full = {name: item.clone() for name, item in pipe.full_parameters().items()}
    moments = [value for state in optimizer.state.values() for value in state.values() if value.dim()]
    num_trained = sum(item.numel() for item in pipe.named_parameters().values())
    if run.precision is None:
        timeline = pipe.last_timeline()
        assert timeline is None or timeline.iteration_s > 0
    pipe.close()
    return Trained(losses, norms, full, pipe.parameter_slices(), sum(map(torch.numel, moments)), num_trained)


def make_optimizer(plan: Plan, name: str) -> None:
    """Create an optimizer that may not be elementwise."""
    pipe = Pipeline(KINDS["mlp"].model(), plan, KINDS["mlp"].loss)
    try:
        pipe.optimizer(getattr(torch.optim, name))
    finally:
        pipe.close()
