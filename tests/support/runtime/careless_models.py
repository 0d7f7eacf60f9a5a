"""User code that cannot be correct in a pipeline, as functions that ranks can run."""

from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from tests.support.runtime.stages import Masked
from tests.support.runtime.user_models import mean_square

BATCH = torch.ones(6, 6), torch.zeros(6)


def different_buffers(plan: Plan) -> None:
    """Ranks have equal parameters, but draw different buffers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    torch.manual_seed(dist.get_rank())
    model[1].register_buffer("drawn", torch.randn(3))
    Pipeline(model, plan, mean_square)


def one_norm_twice(plan: Plan) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6)
    pipe = Pipeline(nn.Sequential(nn.Linear(6, 6), norm, nn.Linear(6, 6), norm), plan, mean_square, timeout_s=20)
    pipe.step(torch.randn(6, 6), torch.zeros(6))


class Table(nn.Module):
    """Reads a constant table."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x) + self.table
        return found


def one_table_for_all(plan: Plan) -> float:
    torch.manual_seed(0)
    table = torch.ones(6)
    pipe = Pipeline(nn.Sequential(Table(table), Table(table)), plan, mean_square, timeout_s=20)
    loss = float(pipe.step(*BATCH))
    pipe.close()
    return loss


def clamped_after_the_step(plan: Plan, is_loaded: str = "") -> None:
    """Change parameters after the optimizer step; with a folder, load a checkpoint on all ranks afterwards."""
    torch.manual_seed(0)
    pipe = Pipeline(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), plan, mean_square, timeout_s=20)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    pipe.step(*BATCH)
    optimizer.step()
    pipe.step(*BATCH)
    if is_loaded:
        pipe.save(is_loaded)
    with torch.no_grad():
        for item in pipe.named_parameters().values():
            item.clamp_(-0.1, 0.1)
    if is_loaded:
        pipe.load(is_loaded)
    pipe.step(*BATCH)
    pipe.close()


def recomputes_with_another_buffer(plan: Plan) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), Masked(), nn.Linear(6, 6))
    pipe = Pipeline(model, plan, mean_square, timeout_s=20)
    pipe.step(*BATCH)


def replaced_buffers(plan: Plan) -> dict[str, float]:
    torch.manual_seed(0)
    pipe = Pipeline(nn.Sequential(nn.Linear(6, 6), Masked()), plan, mean_square, timeout_s=20)
    pipe.step(*BATCH)
    found = {name: float(item) for name, item in pipe.named_buffers().items() if name.endswith("count")}
    pipe.close()
    return found


def too_early_and_unknown(plan: Plan) -> list[str]:
    """The error messages of the pipeline, which works afterwards."""
    torch.manual_seed(0)
    pipe = Pipeline(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), plan, mean_square, timeout_s=20)
    told = []
    for wrong in (pipe.last_timeline, partial(pipe.step, (BATCH[0], np.ones(3)), BATCH[1])):
        try:
            wrong()
        except ValueError as error:
            told.append(str(error))
    pipe.close()
    return told
