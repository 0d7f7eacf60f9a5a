"""Training in a precision, as functions that ranks can run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.verify.single_process import SingleProcess
from tests.support.runtime.models import KINDS

NUM_MICROBATCHES = 3
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "plain": {"foreach": False, "fused": False},
}
TOO_LARGE = 2.0**40
"""A loss scale with which float16 overflows."""


@dataclass(frozen=True)
class Run:
    """A training run."""

    kind: str
    plan: Plan | None
    """None: in a single process."""
    precision: str | None
    stop: int = 5
    rows: tuple[int, ...] = (7,)
    optimizer: str = "plain"
    lr: float = 1e-2
    max_norm: float | None = None
    accumulated: int = 1
    loss_scale: float | None = None
    own_sum: bool = False
    """Whether the loss function returns a sum and a count."""
    load: str = ""
    save: str = ""
    float_inputs_as: torch.dtype = torch.float32


@dataclass
class Trained:
    """The result of a run on one rank."""

    losses: list[Tensor]
    parameters: dict[str, Tensor]
    scales: list[float]
    skipped: list[bool]
    layer_types: set[torch.dtype] = field(default_factory=set)
    rates: list[float] = field(default_factory=list)


def summed(kind: str) -> Callable[[Any, Any], tuple[Tensor, int]]:
    """The loss of a model as a sum and a count."""

    def loss(output: Tensor, targets: Tensor) -> tuple[Tensor, int]:
        flat = output.flatten(0, -2)
        return F.cross_entropy(flat, targets.flatten(), reduction="sum"), len(flat)

    return loss


def batch(run: Run, step: int) -> tuple[Tensor, Tensor]:
    """The batch of a step."""
    inputs, targets = KINDS[run.kind].batch(step, run.rows[step % len(run.rows)])
    return (inputs.to(run.float_inputs_as) if inputs.is_floating_point() else inputs), targets


def train(run: Run) -> Trained:
    """Train, by a plan or in a single process."""
    model = KINDS[run.kind].model()
    loss = summed(run.kind) if run.own_sum else KINDS[run.kind].loss
    more: dict[str, Any] = {} if run.loss_scale is None else {"loss_scale": run.loss_scale}
    trainer: Any
    if run.plan is None:
        trainer = SingleProcess(model, find_blocks(model), NUM_MICROBATCHES, loss, precision=run.precision, **more)
    else:
        trainer = Pipeline(model, run.plan, loss, timeout_s=60, precision=run.precision, **more)
    optimizer = trainer.optimizer(torch.optim.AdamW, lr=run.lr, **OPTIMIZERS[run.optimizer])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    first = 0
    if run.load:
        loaded = trainer.load(Path(run.load))
        first = loaded.step // run.accumulated
        scheduler.load_state_dict(loaded.extra)
    result = Trained([], {}, [], [])
    for step in range(first, run.stop):
        optimizer.zero_grad()
        for part in range(run.accumulated):
            result.losses.append(trainer.step(*batch(run, step * run.accumulated + part)))
        if run.max_norm is not None:
            trainer.clip_grad_norm(run.max_norm)
        result.skipped.append(trainer.skips_step)
        optimizer.step()
        if not trainer.skips_step:
            scheduler.step()
        result.scales.append(trainer.loss_scale)
        result.rates.append(optimizer.param_groups[0]["lr"])
    if run.save:
        trainer.save(Path(run.save), extra=scheduler.state_dict())
    result.layer_types = {item.dtype for item in model.parameters() if not item.is_meta}
    trainer.close()
    result.parameters = {name: item.detach() for name, item in trainer.named_parameters().items()}
    return result


def train_all(runs: Sequence[Run]) -> list[Trained]:
    """Train several times, one after the other."""
    return [train(run) for run in runs]


def train_with_grad_scaler(run: Run) -> tuple[list[Tensor], dict[str, Tensor], list[float]]:
    """Train a whole batch at a time under autocast to float16, with torch's own loss scaler."""
    model = KINDS[run.kind].model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=run.loss_scale or 65536.0)
    losses, scales = [], []
    for step in range(run.stop):
        optimizer.zero_grad()
        inputs, targets = batch(run, step)
        with torch.autocast("cpu", torch.float16):
            loss = KINDS[run.kind].loss(model(inputs), targets)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= before:
            scheduler.step()
        losses.append(loss.detach())
        scales.append(scaler.get_scale())
    return losses, {name: item.detach() for name, item in model.named_parameters()}, scales


def change_layer(plan: Plan) -> None:
    """Change a parameter of a layer, behind the back of its master weight."""
    model = KINDS["mlp"].model()
    pipe = Pipeline(model, plan, KINDS["mlp"].loss, precision="bf16")
    pipe.step(*KINDS["mlp"].batch(0, 6))
    with torch.no_grad():
        for item in model.parameters():
            if not item.is_meta:
                item.add_(1)
    pipe.step(*KINDS["mlp"].batch(1, 6))


def change_masters(plan: Plan) -> tuple[Tensor, Tensor]:
    """Losses of a batch before and after master weights are changed; the second must see the change."""
    pipe = Pipeline(KINDS["mlp"].model(), plan, KINDS["mlp"].loss, precision="bf16")
    before = pipe.evaluate(*KINDS["mlp"].batch(0, 6))
    with torch.no_grad():
        for item in pipe.named_parameters().values():
            item.mul_(2)
    after = pipe.evaluate(*KINDS["mlp"].batch(0, 6))
    pipe.close()
    return before, after


def shared_model() -> nn.Sequential:
    """Two layers with one weight, and a buffer."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, nn.BatchNorm1d(4), second)
