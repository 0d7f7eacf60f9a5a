"""Chains of small blocks for random plans: skip connections, ties, dropout, blocks without parameters."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.verify.plain_reference import reference_step
from tests.support.runtime.comparison import in_order

WIDTH = 6


class Piece(nn.Module):
    """Every third block has no parameters, some pass an older tensor on, all have dropout."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH) if number % 3 != 2 else nn.Identity()
        self.number = number

    def forward(self, payload: tuple[Tensor, Tensor, int]) -> tuple[Tensor, Tensor, int]:
        x, older, count = payload
        out = F.dropout(torch.tanh(self.layer(x)) + 0.3 * older, 0.2, self.training)
        return out, (x if self.number % 2 else older), count + 1


class First(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        return self.layer(x), x, 1


def make_model(num_units: int, tied: tuple[int, ...]) -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(First(), *[Piece(number) for number in range(1, num_units)])
    found = [model[number].layer for number in tied]
    layers = [layer for layer in found if isinstance(layer, nn.Linear)]
    for layer in layers[1:]:
        layer.weight = layers[0].weight
    return model.double()


def loss(payload: tuple[Tensor, Tensor, int], targets: Tensor) -> Tensor:
    return F.mse_loss(payload[0] * payload[2], targets) + 0.1 * payload[1].square().mean()


def batch(step: int, num_rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    shape = (num_rows, WIDTH)
    return (
        torch.randn(shape, generator=generator, dtype=torch.float64),
        torch.randn(shape, generator=generator, dtype=torch.float64),
    )


def train(
    plan: Plan, tied: tuple[int, ...], num_rows: int, device: str = "cpu"
) -> tuple[list[Tensor], dict[str, Tensor], bool]:
    """Losses, parameters, and whether all sums are in the order of a single process."""
    with torch.device(device):
        model = make_model(plan.num_units, tied)
    pipe = Pipeline(model, plan, loss, timeout_s=30)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1, momentum=0.9)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        losses.append(pipe.step(*batch(step, num_rows)).cpu())
        optimizer.step()
    pipe.close()
    exact = not pipe.proof.costs.reductions and not pipe.proof.costs.tied_stages
    parameters = {name: item.detach().cpu() for name, item in pipe.named_parameters().items()}
    return losses, parameters, exact and in_order(pipe.proof.program)


def train_single_process(plan: Plan, tied: tuple[int, ...], num_rows: int) -> tuple[list[Tensor], dict[str, Tensor]]:
    model = make_model(plan.num_units, tied)
    blocks = find_blocks(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        losses.append(reference_step(model, blocks, plan.num_microbatches, loss, *batch(step, num_rows), step=step))
        optimizer.step()
    return losses, {name: item.detach() for name, item in model.named_parameters()}
