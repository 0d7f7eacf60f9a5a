"""A model with its own forward, not an nn.Sequential: its blocks are logits by running it."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.verify.plain_reference import reference_step


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.drop = nn.Linear(8, 8), nn.Dropout(0.2)

    def forward(self, x: Tensor, scale: float) -> Tensor:
        inner: Tensor = self.drop(torch.tanh(self.inner(x)))
        return x + inner * scale


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Parameter(torch.randn(5, 8))
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places
        for layer in self.layers:
            x = layer(x, 0.5)
        logits: Tensor = self.head(self.norm(x))
        return logits


def loss(out: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, 1), targets.flatten())


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    ids, targets = (torch.randint(11, (7, 5), generator=generator) for _ in range(2))
    return ids, targets


def train(plan: Plan) -> tuple[list[Tensor], dict[str, Tensor]]:
    torch.manual_seed(0)
    pipe = Pipeline(Model(), plan, loss, inputs=batch(0)[0])
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-3)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        losses.append(pipe.step(*batch(step)))
        optimizer.step()
    pipe.close()
    return losses, {name: item.detach() for name, item in pipe.named_parameters().items()}


def train_single_process(num_microbatches: int) -> tuple[list[Tensor], dict[str, Tensor]]:
    torch.manual_seed(0)
    model = Model()
    blocks = find_blocks(model, None, batch(0)[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        losses.append(reference_step(model, blocks, num_microbatches, loss, *batch(step), step=step))
        optimizer.step()
    return losses, {name: item.detach() for name, item in model.named_parameters()}
