"""What the ranks of the benchmark run: training with a plan beside the same training in a single process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import penstock
from benchmarks.models import other_models, transformers_models
from penstock import Cluster, Plan, Profile
from penstock.model import find_blocks
from penstock.runtime.verify import SingleProcess

NUM_STEPS = 10
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Training:
    """Ten steps of one rank, beside those of a single process that starts every step with the same parameters."""

    losses: tuple[float, ...]
    loss_error: float
    """The largest relative difference of a loss."""
    gradient_error: float
    """The largest norm of the difference of all gradients of this rank, relative to the norm of all gradients."""
    num_parameters: int
    """The parameters that this rank trains."""
    missing: tuple[str, ...]
    """Parameters that have a gradient on one side only."""
    names: tuple[str, ...]


def make(name: str) -> tuple[torch.nn.Module, Any]:
    """Make a model of the table and a batch."""
    return other_models.make(name) if name in other_models.MODELS else transformers_models.make(name)


def profile_model(_memory: dict[str, Any], name: str, seconds: float) -> Profile:
    """Profile a model."""
    model, inputs = make(name)
    return penstock.profile(model, inputs, seconds=seconds, micro_batch_sizes=[2], overheads=False, name=name)


def train(_memory: dict[str, Any], name: str, plan: Plan, profile: Profile, cluster: Cluster) -> Training:
    """Train with the plan, and compare every step with a single process."""
    model, inputs = make(name)
    pipe = penstock.Pipeline(model, plan, profile=profile, cluster=cluster, inputs=inputs)
    single_model, _ = make(name)
    blocks = find_blocks(single_model, None, inputs)
    single = SingleProcess(single_model, blocks, plan.num_microbatches, None)
    trained, known = pipe.named_parameters(), dict(single_model.named_parameters())
    optimizer = pipe.optimizer(torch.optim.SGD, lr=LEARNING_RATE)
    single_optimizer = single.optimizer(torch.optim.SGD, lr=LEARNING_RATE)
    losses, loss_error, gradient_error = [], 0.0, 0.0
    missing: set[str] = set()
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        single_optimizer.zero_grad()
        loss, expected = float(pipe.step(inputs)), float(single.step(inputs))
        losses.append(loss)
        loss_error = max(loss_error, abs(loss - expected) / max(abs(expected), 1e-12))
        total = _norm([item.grad for item in known.values()])
        missing |= {key for key, item in trained.items() if (item.grad is None) != (known[key].grad is None)}
        both = [(item.grad, known[key].grad) for key, item in trained.items() if key not in missing]
        errors = [one - other for one, other in both if one is not None and other is not None]
        gradient_error = max(gradient_error, _norm(errors) / max(total, 1e-12))
        for key, item in trained.items():  # so that the next difference is that of the next step alone
            grad = known[key].grad
            item.grad = None if grad is None else grad.clone()
        optimizer.step()
        single_optimizer.step()
    pipe.close()
    return Training(tuple(losses), loss_error, gradient_error, len(trained), tuple(sorted(missing)), tuple(trained))


def _norm(tensors: Sequence[torch.Tensor | None]) -> float:
    return float(sum(item.double().square().sum() for item in tensors if item is not None) ** 0.5)
