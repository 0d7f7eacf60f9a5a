"""Models that are not an nn.Sequential, with computation between the blocks."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + F.dropout(self.mlp(x), 0.1, self.training)


class GPT(nn.Module):
    """Tied embedding, dropout, a mask for all layers, sizes that are read early and used late."""

    def __init__(self, width: int = 8, words: int = 11, layers: int = 3) -> None:
        super().__init__()
        self.embed, self.place, self.drop = nn.Embedding(words, width), nn.Embedding(16, width), nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        rows, length = ids.shape
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        x = self.drop(self.embed(ids) + self.place(torch.arange(length)))
        for layer in self.layers:
            x = layer(x, mask)
        logits: Tensor = self.head(self.norm(x))
        return logits.view(rows * length, -1)


class VGG(nn.Module):
    """BatchNorm and ReLU in place."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 4, 6, 8)
        self.features = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True), nn.MaxPool2d(2))
                for a, b in pairwise(widths)
            )
        )
        self.classifier = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        x = self.features(images)
        result: Tensor = self.classifier(torch.flatten(F.relu_(x), 1))
        return result


class ResNet(nn.Module):
    """A skip over one block, one over two, and a parameter of the model itself."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(5))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3))
        self.scale = nn.Parameter(torch.full((4, 1, 1), 0.5))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        stem = F.relu(self.norms[0](self.convs[0](x)), inplace=True)
        y = F.relu(self.norms[1](self.convs[1](stem)))
        z = self.convs[2](y) + stem
        w = self.norms[2](self.convs[3](F.relu(z))) * self.scale + z
        w += stem
        result: Tensor = self.convs[4](w).mean((2, 3))
        return result


class Bag(nn.Module):
    """Takes and returns a dict with None, a number and integers."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.linear, self.gain = nn.Linear(4, 4), gain

    def forward(self, bag: dict[str, Any], turn: int, *, bias: Tensor | None = None) -> dict[str, Any]:
        x = self.linear(bag["x"]) * self.gain
        return {
            "x": x if bias is None else x + bias,
            "pair": (bag["index"], None),
            "index": bag["index"].flip(0),
            "turn": turn,
        }


class Bags(nn.Module):
    """Dicts, tuples, None and integer tensors between blocks; a branch on tensor data; keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(Bag(gain) for gain in (1.0, 0.5, 2.0))
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor, index: Tensor, bias: Tensor | None = None) -> tuple[Tensor, dict[str, Any]]:
        bag: dict[str, Any] = {"x": x, "index": index}
        small = x.abs().mean()
        for turn, block in enumerate(self.bags):
            bag = block(bag, turn, bias=bias if turn else None)
            if small > 1e-9:
                bag["x"] = bag["x"] + bag["pair"][0].unsqueeze(1)
        noise = torch.rand(4)
        return self.out(bag["x"] * noise), {"turn": bag["turn"], "index": bag["index"], "none": bag["pair"][1]}


class Case(NamedTuple):
    model: Callable[[], nn.Module]
    inputs: Callable[[int], Any]
    """For so many rows."""
    names: tuple[str, ...] | None


def _ids(rows: int) -> Tensor:
    return torch.randint(0, 11, (rows, 7))


CASES = {
    "gpt": Case(GPT, _ids, None),
    "gpt, coarse": Case(GPT, _ids, ("layers.1", "norm")),
    "vgg": Case(VGG, lambda rows: torch.randn(rows, 3, 8, 8), None),
    "resnet": Case(
        ResNet,
        lambda rows: torch.randn(rows, 4, 6, 6),
        ("convs.0", "convs.1", "convs.2", "convs.3", "convs.4"),
    ),
    "bags": Case(Bags, lambda rows: (torch.randn(rows, 4), torch.arange(rows), torch.randn(4)), None),
    "bags by keyword": Case(Bags, lambda rows: {"x": torch.randn(rows, 4), "index": torch.arange(rows)}, None),
}
