"""Small models of all shapes, with data, losses and hand-made profiles."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.model.blocks import find_blocks, shared_parameters
from penstock.profile.types import Profile, Sizes, Tie, Times, Unit

SEED = 5
ROWS = 4
"""Rows of a micro-batch in plans."""


class Embed(nn.Module):
    """Returns a tuple: activations, integers, and None."""

    def __init__(self, vocabulary: int, width: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.1)
        self.drop = nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor, None]:
        return self.drop(self.tokens(ids) + self.places), ids % 2, None


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        # Without a bias: attention does not depend on that of the keys, so its gradient would be pure rounding.
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.join = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, payload: tuple[Tensor, Tensor, None]) -> tuple[Tensor, Tensor, None]:
        x, odd, _ = payload
        rows, length, width = x.shape
        parts = self.attention(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        found = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        x = x + self.drop(self.join(found.transpose(1, 2).reshape(rows, length, width)))
        x = x + self.drop(self.narrow(F.gelu(self.wide(self.norm2(x)))))
        return x * (1 + 0.1 * odd.unsqueeze(-1).to(x.dtype)), odd, None


class Head(nn.Module):
    def __init__(self, width: int, tokens: nn.Embedding) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.weight = tokens.weight

    def forward(self, payload: tuple[Tensor, Tensor, None]) -> Tensor:
        return F.linear(self.norm(payload[0]), self.weight)


class Begin(nn.Module):
    """The start of a residual connection: returns its input beside its output."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(2, channels)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"inner": self.norm(F.relu(self.conv(x))), "skip": x}


class Middle(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, payload: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"inner": torch.tanh(self.conv(payload["inner"])) + 0.1 * payload["skip"], "skip": payload["skip"]}


class End(nn.Module):
    def forward(self, payload: dict[str, Tensor]) -> Tensor:
        return F.relu(payload["inner"] + payload["skip"])


def gpt() -> nn.Sequential:
    embed = Embed(17, 16, 6)
    return nn.Sequential(embed, *[Layer(16, 2) for _ in range(3)], Head(16, embed.tokens))


def vgg() -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in ((3, 6), (6, 8)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 12), nn.ReLU(inplace=True), nn.Linear(12, 5)]
    return nn.Sequential(*layers)


def resnet() -> nn.Sequential:
    residuals = [part for _ in range(2) for part in (Begin(6), Middle(6), End())]
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), *residuals, nn.Flatten(), nn.Linear(6 * 64, 5))


def mlp() -> nn.Sequential:
    widths = [8, 64, 16, 96, 5]
    pairs = pairwise(widths)
    return nn.Sequential(*[part for a, b in pairs for part in (nn.Linear(a, b), nn.Tanh())][:-1])


def token_loss(out: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, 1), targets.flatten())


@dataclass(frozen=True)
class Kind:
    """A model with its loss and its batches."""

    make: Callable[[], nn.Sequential]
    loss: Callable[[Any, Any], Tensor]
    shape: tuple[int, ...]
    targets: tuple[int, ...] = ()
    num_classes: int = 5
    is_tokens: bool = False

    def model(self) -> nn.Sequential:
        torch.manual_seed(SEED)
        return self.make()

    def batch(self, step: int, num_rows: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(100 + step)
        shape = (num_rows, *self.shape)
        x = (
            torch.randint(self.num_classes, shape, generator=generator)
            if self.is_tokens
            else torch.randn(shape, generator=generator)
        )
        return x, torch.randint(self.num_classes, (num_rows, *self.targets), generator=generator)


KINDS = {
    "gpt": Kind(gpt, token_loss, (6,), (6,), 17, is_tokens=True),
    "vgg": Kind(vgg, F.cross_entropy, (3, 8, 8)),
    "resnet": Kind(resnet, F.cross_entropy, (3, 8, 8)),
    "mlp": Kind(mlp, F.cross_entropy, (8,)),
}


def profile_of(name: str) -> Profile:
    """A profile with uneven times, and with the parameters and ties of the model."""
    blocks = find_blocks(KINDS[name].model())
    sizes = {key: item.numel() * item.element_size() for block in blocks for key, item in block.parameters.items()}
    units = tuple(
        Unit(
            name=block.name,
            parameter_bytes=sum(sizes[key] for key in block.parameters),
            sizes=(Sizes(micro_batch_size=ROWS, cut_bytes=1000, saved_bytes=3000),),
            times=(
                Times(
                    kind="k",
                    micro_batch_size=ROWS,
                    forward_s=1e-3 * (1 + 7 * number % 5),
                    input_grad_s=1e-3 * (1 + 3 * number % 4),
                    weight_grad_s=1e-3 * (1 + 5 * number % 3),
                    step_s=1e-3,
                ),
            ),
        )
        for number, block in enumerate(blocks)
    )
    ties = tuple(
        Tie(name=key, parameter_bytes=sizes[key], units=holders) for key, holders in shared_parameters(blocks).items()
    )
    return Profile(name=name, micro_batch_size=ROWS, units=units, input_bytes=100, ties=ties)
