"""A rank that is late for what others have for it, as functions that ranks can run."""

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
    """On rank 1 this takes long, in the forward or in the backward."""

    def __init__(self, in_forward: bool) -> None:
        super().__init__()
        self.in_forward = in_forward

    def forward(self, x: Tensor) -> Tensor:
        return _Late.apply(x, self.in_forward)  # type: ignore[no-any-return, no-untyped-call]


def ends_of(plan: Plan, in_forward: bool) -> dict[str, float]:
    """When each action of a step ended, by its name and device; no optimizer steps."""
    torch.manual_seed(0)
    pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), Late(in_forward)), plan, mean_square, timeout_s=60)
    pipe.step(*BATCH)
    found = pipe.last_timeline()
    program = found.program
    pipe.close()
    return {program.name(place): float(found.end_s[place]) for place in range(program.num_actions)}


def seconds_of_the_optimizer(plan: Plan) -> float:
    """What its step takes, while rank 1, where fresh parameters go, is about other things."""
    torch.manual_seed(0)
    pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), plan, mean_square, timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    pipe.step(*BATCH)
    if dist.get_rank() == 1:
        time.sleep(LATE_S)
    begun = time.perf_counter()
    optimizer.step()
    taken = time.perf_counter() - begun
    pipe.step(*BATCH)
    pipe.close()
    return taken
