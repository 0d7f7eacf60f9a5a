"""Functions for ranks, in which rank 1 is late for messages of the others."""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from tests.support.runtime.user_models import mean_square

LATE_S = 2.0
BATCH = torch.ones(6, 3), torch.zeros(6)


class _Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, in_forward: bool) -> Tensor:
        ctx.in_forward = in_forward
        if in_forward and dist.get_rank() == 1:
            time.sleep(LATE_S)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if not ctx.in_forward and dist.get_rank() == 1:
            time.sleep(LATE_S)
        return grads[0], None


class Late(nn.Module):
    """Takes long on rank 1, in the forward or in the backward."""

    def __init__(self, in_forward: bool) -> None:
        super().__init__()
        self.in_forward = in_forward

    def forward(self, x: Tensor) -> Tensor:
        return _Late.apply(x, self.in_forward)  # type: ignore[no-any-return, no-untyped-call]


def action_ends(plan: Plan, in_forward: bool) -> dict[str, float] | None:
    """When each action of an iteration without an optimizer step ended, by name and device; None unless on rank 0."""
    torch.manual_seed(0)
    pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), Late(in_forward)), plan, mean_square, timeout_s=60)
    pipe.step(*BATCH)
    timeline = pipe.last_timeline()
    pipe.close()
    if timeline is None:
        return None
    program = timeline.program
    return {program.name(index): float(timeline.end_s[index]) for index in range(program.num_actions)}


def time_optimizer_step(plan: Plan) -> float:
    """How long the optimizer step takes while rank 1, which receives updated weights, is busy."""
    torch.manual_seed(0)
    pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), plan, mean_square, timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    pipe.step(*BATCH)
    if dist.get_rank() == 1:
        time.sleep(LATE_S)
    start = time.perf_counter()
    optimizer.step()
    elapsed = time.perf_counter() - start
    pipe.step(*BATCH)
    pipe.close()
    return elapsed
