"""Models of tokens whose loss is a mean over labels, of which some are ignored."""

from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline

WORDS, WIDTH, LENGTH = 11, 5, 4
RATE = 0.5


class Layer(nn.Module):
    """One block: the first one embeds, and the last one returns logits, or also the loss."""

    def __init__(self, *, is_first: bool, is_last: bool, loss: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH) if is_first else None
        self.linear = nn.Linear(WIDTH, WORDS if is_last else WIDTH)
        self.is_last = is_last
        self.loss = loss

    def forward(self, payload: Any) -> Any:
        if self.embed is not None:
            x, labels = self.embed(payload["input_ids"]), payload.get("labels")
            if "scale" in payload:
                x = x * payload["scale"]
        else:
            x, labels = payload
        x = self.linear(x)
        if not self.is_last:
            return torch.tanh(x), labels
        if self.loss == "none":
            return x
        if self.loss == "rows":
            return Output(F.cross_entropy(x.transpose(1, 2), labels.clamp(min=0)), x)
        if self.loss == "shifted":
            return {"loss": cross_entropy(x[:, :-1], labels[:, 1:]), "logits": x}
        return cross_entropy(x, labels)


@dataclass
class Output:
    """The model's own output class."""

    loss: Tensor
    logits: Tensor


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=reduction)


def sum_and_count(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return cross_entropy(logits, labels, "sum"), (labels != -100).sum()


def weighted(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """A count that depends on the output."""
    weights = (labels != -100) * logits.detach().square().mean(-1)
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return (losses * weights).sum(), weights.sum()


@dataclass(frozen=True)
class Kind:
    """A kind of loss: in the model, or a function."""

    own: str = "none"
    function: Callable[[Any, Any], Any] | None = None


KINDS = {
    "own shifted": Kind("shifted"),
    "own full": Kind("full"),
    "own rows": Kind("rows"),
    "mean over targets": Kind(function=cross_entropy),
    "sum and count": Kind(function=sum_and_count),
    "weighted": Kind(function=weighted),
}


def make_model(kind: str, num_units: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        Layer(is_first=number == 0, is_last=number == num_units - 1, loss=KINDS[kind].own)
        for number in range(num_units)
    ]
    return nn.Sequential(*layers).double()


Masks = tuple[tuple[int, ...], ...]
"""For each row, which of its labels are ignored."""


def batch(kind: str, step: int, masks: Masks) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(step)
    words, labels = torch.randint(0, WORDS, (2, len(masks), LENGTH), generator=generator)
    labels[torch.tensor(masks) > 0] = -100
    inputs = UserDict(input_ids=words, scale=torch.ones(1, LENGTH, 1, dtype=torch.float64), use_cache=False)
    if KINDS[kind].function is not None:
        return inputs, labels
    inputs["labels"] = labels
    return inputs, None


@dataclass
class Run:
    """Losses and parameters of a training run."""

    losses: list[Tensor]
    parameters: dict[str, Tensor]


def train(plan: Plan, kind: str, batches: list[Masks], accumulated: int = 1) -> Run:
    """On one rank, with the plan."""
    model = make_model(kind, plan.num_units)
    pipe = Pipeline(model, plan, KINDS[kind].function, timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=RATE, momentum=0.9)
    losses = []
    for step, masks in enumerate(batches):
        if step % accumulated == 0:
            optimizer.zero_grad()
        losses.append(pipe.step(*batch(kind, step, masks)))
        losses.append(pipe.evaluate(*batch(kind, step, masks)))
        if (step + 1) % accumulated == 0:
            optimizer.step()
    pipe.close()
    return Run(losses, {name: item.detach() for name, item in pipe.named_parameters().items()})


def train_in_one_pass(kind: str, num_units: int, batches: list[Masks], accumulated: int = 1) -> Run:
    """With plain autograd, each batch in one pass."""
    model = make_model(kind, num_units)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    losses = []
    for step, masks in enumerate(batches):
        if step % accumulated == 0:
            optimizer.zero_grad()
        inputs, targets = batch(kind, step, masks)
        output = model(dict(inputs))
        function = KINDS[kind].function
        loss = output if function is None else function(output, targets)
        if isinstance(loss, tuple):
            loss = loss[0] / loss[1]
        if isinstance(loss, Output):
            loss = loss.loss
        loss = loss["loss"] if isinstance(loss, dict) else loss
        loss.backward()
        losses += [loss.detach()] * 2
        if (step + 1) % accumulated == 0:
            optimizer.step()
    return Run(losses, {name: item.detach() for name, item in model.named_parameters()})
