"""A model with frozen weights and small adapters, and its training, as functions that ranks can run."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline

ROWS, STEPS, RANK = 12, 4, 2


class LoRA(nn.Module):
    """A frozen linear layer with a trained update of low rank."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(RANK, inputs) / inputs)
        self.b = nn.Parameter(torch.randn(outputs, RANK) / 10)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + x @ self.a.T @ self.b.T
        return found


def make_model() -> nn.Sequential:
    """The first and the last two layers are frozen. The others have adapters."""
    torch.manual_seed(5)
    frozen = [nn.Linear(6, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)]
    for layer in frozen:
        layer.requires_grad_(False)
    return nn.Sequential(frozen[0], nn.Tanh(), frozen[1], LoRA(8, 8), nn.Tanh(), LoRA(8, 8), frozen[2], frozen[3])


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, 6, generator=generator), torch.randn(ROWS, 3, generator=generator)


class Trained(NamedTuple):
    losses: list[Tensor]
    adapters: dict[str, Tensor]
    states: int
    """The number of parameters with optimizer state."""
    grads: list[str]
    """The parameters with a gradient."""


def train(plan: Plan, folder: str = "", load: bool = False, **options: Any) -> Trained:
    """Train from the first step, or from a checkpoint after half of the steps. Saves that checkpoint."""
    model = make_model()
    pipe = Pipeline(model, plan, nn.functional.mse_loss, **options)
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-2)
    first = pipe.load(folder).step if load else 0
    losses = []
    for step in range(first, STEPS):
        if folder and not load and step == STEPS // 2:
            pipe.save(folder)
        optimizer.zero_grad()
        losses.append(pipe.step(*batch(step)))
        pipe.clip_grad_norm(1.0)
        optimizer.step()
    adapters = {name: item.detach().clone() for name, item in pipe.named_parameters().items()}
    grads = [name for name, item in model.named_parameters() if item.grad is not None]
    states = sum(1 for item in optimizer.state if item.numel())
    pipe.close()
    return Trained(losses, adapters, states, grads)


def train_alone() -> Trained:
    """The same in a single process, with autograd alone."""
    model = make_model()
    trained = {name: item for name, item in model.named_parameters() if item.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs, targets = batch(step)
        loss = nn.functional.mse_loss(model(inputs), targets)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return Trained(losses, {name: item.detach() for name, item in trained.items()}, len(optimizer.state), list(trained))
