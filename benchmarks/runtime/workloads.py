"""The models that are trained: chains of blocks, with data and a loss. No dropout: contenders draw differently."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

SEED = 3


class Embed(nn.Module):
    """Tokens and positions."""

    def __init__(self, vocabulary: int, width: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)

    def forward(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.tokens(ids) + self.positions
        return embedded


class Layer(nn.Module):
    """A transformer layer with causal attention, norms first."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.attention(self.norm1(x)).view(rows, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        embedded = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(embedded.transpose(1, 2).reshape(rows, length, width))
        changed: Tensor = x + self.narrow(F.gelu(self.wide(self.norm2(x))))
        return changed


def gpt(num_layers: int, width: int, length: int, vocabulary: int) -> nn.Sequential:
    """The head is not tied: torch.distributed.pipelining has no all-reduce for tied weights."""
    layers = [Layer(width, max(1, width // 64)) for _ in range(num_layers)]
    head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False))
    return nn.Sequential(Embed(vocabulary, width, length), *layers, head)


VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
"""Channels of the convolutions; 0 is a pool, in the block of the convolution before it."""


def vgg(channels: Sequence[int], num_hidden: int) -> nn.Sequential:
    """Blocks of convolution, batch norm and ReLU, then three linear layers."""
    blocks: list[list[nn.Module]] = []
    before = 3
    for count in channels:
        if count:
            conv = nn.Conv2d(before, count, 3, padding=1, bias=False)
            blocks.append([conv, nn.BatchNorm2d(count), nn.ReLU(inplace=True)])
            before = count
        else:
            blocks[-1].append(nn.MaxPool2d(2))
    size = 32 >> sum(not count for count in channels)
    blocks.append([nn.Flatten(), nn.Linear(before * size * size, num_hidden), nn.ReLU(inplace=True)])
    blocks.append([nn.Linear(num_hidden, num_hidden), nn.ReLU(inplace=True)])
    blocks.append([nn.Linear(num_hidden, 10)])
    return nn.Sequential(*[nn.Sequential(*block) for block in blocks])


def mlp(widths: Sequence[int]) -> nn.Sequential:
    """Blocks of a linear layer and GELU."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(a, b), nn.GELU()) for a, b in pairwise(widths)])


@dataclass(frozen=True)
class Workload:
    """A model to train."""

    name: str
    title: str
    make: Callable[[], nn.Sequential]
    rows: int
    """The micro-batch size."""
    shape: tuple[int, ...]
    """The shape of one row of the inputs."""
    num_classes: int
    steps: int
    """Iterations per turn."""
    is_tokens: bool = False
    has_full_baseline: bool = False
    """Whether a single process is also timed on the whole batch at once."""

    def model(self) -> nn.Sequential:
        """The model, with the same weights on every rank."""
        torch.manual_seed(SEED)
        return self.make()

    def batch(self, step: int, num_microbatches: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of an iteration."""
        generator = torch.Generator().manual_seed(1000 + step)
        num_rows = self.rows * num_microbatches
        if self.is_tokens:
            ids = torch.randint(self.num_classes, (num_rows, self.shape[0] + 1), generator=generator)
            return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        x = torch.randn(num_rows, *self.shape, generator=generator)
        return x, torch.randint(self.num_classes, (num_rows,), generator=generator)

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """The mean over rows (and positions)."""
        if self.is_tokens:
            return F.cross_entropy(output.flatten(0, 1), targets.flatten())
        return F.cross_entropy(output, targets)


def _make_gpt() -> nn.Sequential:
    return gpt(8, 512, 128, 8192)


def _make_vgg() -> nn.Sequential:
    return vgg(VGG16, 512)


def _make_mlp() -> nn.Sequential:
    return mlp((512, 2048, 1024, 3072, 512, 512, 4096, 1024, 2048, 256, 1536, 10))


def _make_heavy3() -> nn.Sequential:
    """No single set of cuts balances these layers on two ranks."""
    return mlp((1536,) * 4)


def _make_heavy5() -> nn.Sequential:
    return mlp((1536,) * 6)


def _make_small_gpt() -> nn.Sequential:
    return gpt(4, 128, 64, 1024)


def _make_small_vgg() -> nn.Sequential:
    return vgg((32, 32, 0, 64, 64, 0, 128, 128, 0), 128)


def _make_small_mlp() -> nn.Sequential:
    return mlp((256, 1024, 256, 1536, 256, 768, 10))


FULL = {
    item.name: item
    for item in (
        Workload("gpt", "GPT, 8 layers of 512", _make_gpt, 4, (128,), 8192, 1, is_tokens=True),
        Workload("vgg", "VGG16-like on 32x32", _make_vgg, 8, (3, 32, 32), 10, 2, has_full_baseline=True),
        Workload("mlp", "uneven MLP", _make_mlp, 64, (512,), 10, 3),
        Workload("heavy3", "3 equal heavy layers", _make_heavy3, 64, (1536,), 1536, 3),
        Workload("heavy5", "5 equal heavy layers", _make_heavy5, 64, (1536,), 1536, 3),
    )
}
QUICK = {
    item.name: item
    for item in (
        Workload("gpt", "GPT, 4 layers of 128", _make_small_gpt, 4, (64,), 1024, 3, is_tokens=True),
        Workload("vgg", "VGG of 9 blocks", _make_small_vgg, 4, (3, 32, 32), 10, 3, has_full_baseline=True),
        Workload("mlp", "uneven MLP, small", _make_small_mlp, 32, (256,), 10, 5),
    )
}
