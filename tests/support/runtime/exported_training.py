"""Training of the same model by an export for torch, and by Penstock's runtime."""

import importlib.util
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

import penstock

ROWS, WIDTH, STEPS = 8, 12, 3
_numbers = count()


class Outcome(NamedTuple):
    """The loss of every step, on the ranks that know it, and the trained parameters that the rank holds."""

    losses: list[Tensor]
    parameters: dict[str, Tensor]


class Chain(nn.Module):
    """The same kind of layers with a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        skip = x = self.embed(x)
        for layer in self.layers:
            x = torch.tanh(layer(x)) + skip
        output: Tensor = self.head(x)
        return output


CHAIN_LAYERS = ("embed", *(f"layers.{number}" for number in range(4)), "head")


def make_model(kind: str) -> nn.Module:
    torch.manual_seed(3)
    if kind == "chain":
        return Chain()
    return nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


def loss(output: Tensor, targets: Tensor) -> Tensor:
    return (output - targets).square().mean()


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, WIDTH, generator=generator), torch.randn(ROWS, WIDTH, generator=generator)


def train_exported(kind: str, folder: str) -> Outcome:
    """Train as the README of the export states."""
    spec = importlib.util.spec_from_file_location(f"load_{next(_numbers)}", Path(folder) / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pipeline = module.load_pipeline()
    model = make_model(kind)
    rows = pipeline.micro_batch_size
    stages = pipeline.build_stages(model, batch(0)[0][:rows])
    schedule = pipeline.build_schedule(stages, loss)
    parameters = [parameter for stage in stages for parameter in stage.submod.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    numbers = [stage.stage_index for stage in stages]
    losses: list[Tensor] = []
    share = ROWS // pipeline.num_replicas
    mine = slice(pipeline.replica * share, (pipeline.replica + 1) * share)
    for step in range(STEPS):
        inputs, targets = (tensor[mine] for tensor in batch(step))
        found: list[Tensor] = []
        is_last = len(pipeline.modules) - 1 in numbers
        schedule.step(*([inputs] if 0 in numbers else []), **({"target": targets, "losses": found} if is_last else {}))
        pipeline.average_gradients(stages)
        if is_last:
            losses.append(sum(item.detach() for item in found) / len(found))  # type: ignore[arg-type]
        optimizer.step()
        optimizer.zero_grad()
    named = {name: value.detach() for stage in stages for name, value in stage.submod.named_parameters()}
    return Outcome(losses, named)


def train_ours(kind: str, plan: penstock.Plan) -> Outcome:
    """Train by Penstock's runtime."""
    plan = msgspec.structs.replace(plan, layers=())  # the profile has other sizes than the model
    pipe = penstock.Pipeline(make_model(kind), plan, loss, inputs=batch(0)[0], timeout_s=30)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    losses = []
    for step in range(STEPS):
        losses.append(pipe.step(*batch(step)).detach())
        optimizer.step()
        optimizer.zero_grad()
    named = {name: value.detach() for name, value in pipe.named_parameters().items()}
    pipe.close()
    return Outcome(losses, named)
