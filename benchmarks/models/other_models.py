"""Models of other kinds, as a user writes them. Each function returns a model and a batch with its labels.

A model computes its own loss, since the benchmark adds nothing to a model.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.models.batches import classes, numbers, words
from benchmarks.models.small_configs import HEADS, INNER, LAYERS, WIDTH, WORDS


class Output(NamedTuple):
    """A loss with what it was computed of."""

    loss: Tensor
    logits: Tensor


class TorchTransformer(nn.Module):
    """nn.Transformer, with a causal mask and a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
        self.transformer = nn.Transformer(WIDTH, HEADS, 3, 3, INNER, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        past, future = target[:, :-1], target[:, 1:]
        mask = nn.Transformer.generate_square_subsequent_mask(past.shape[1])
        padding = source == 0
        decoded = self.transformer(
            self.source(source) * math.sqrt(WIDTH),
            self.target(past),
            tgt_mask=mask,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits = self.head(decoded)
        return {"loss": F.cross_entropy(logits.flatten(0, 1), future.flatten()), "logits": logits}


class Recurrent(nn.Module):
    """LSTM layers that return their state, a GRU, and a residual connection around each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.lstms = nn.ModuleList(nn.LSTM(WIDTH, WIDTH, batch_first=True) for _ in range(LAYERS))
        self.gru = nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, ids: Tensor, labels: Tensor) -> Output:
        x, state = self.embed(ids), None
        for lstm in self.lstms:
            y, state = lstm(x, state)
            x = x + self.drop(y)
        _, last = self.gru(x)
        logits = self.head(torch.cat([last[0], last[1]], -1))
        return Output(F.cross_entropy(logits, labels), logits)


class DoubleConv(nn.Sequential):
    """Two convolutions with norm."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1),
            nn.GroupNorm(4, after),
            nn.SiLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1),
            nn.GroupNorm(4, after),
            nn.SiLU(inplace=True),
        )


class UNet(nn.Module):
    """Skips from each level of the way down to the same level of the way up."""

    def __init__(self, channels: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__()
        pairs = list(zip((3, *channels), channels, strict=False))
        self.downs = nn.ModuleList(DoubleConv(before, after) for before, after in pairs)
        self.pool = nn.MaxPool2d(2)
        self.middle = DoubleConv(channels[-1], 2 * channels[-1])
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in reversed(channels))
        self.joins = nn.ModuleList(DoubleConv(2 * width, width) for width in reversed(channels))
        self.head = nn.Conv2d(channels[0], 3, 1)

    def forward(self, images: Tensor, masks: Tensor) -> dict[str, Tensor]:
        skips = []
        x = images
        for down in self.downs:
            x = down(x)
            skips.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for up, join in zip(self.ups, self.joins, strict=True):
            x = join(torch.cat([skips.pop(), up(x)], 1))
        logits = self.head(x)
        return {"loss": F.cross_entropy(logits, masks), "logits": logits}


class Residual(nn.Module):
    """A block of ResNet with batch norm."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """Stages of blocks as attributes, as in torchvision."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Residual(8, 8, 1), Residual(8, 8, 1))
        self.layer2 = nn.Sequential(Residual(8, 16, 2), Residual(16, 16, 1))
        self.layer3 = nn.Sequential(Residual(16, 32, 2), Residual(32, 32, 1))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> tuple[Tensor, ...] | Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits = self.fc(torch.flatten(self.pool(x), 1))
        return Output(F.cross_entropy(logits, labels), logits) if labels is not None else logits


class OnlyKeywords(nn.Module):
    """A forward of **kwargs, which returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS))
        self.outer = nn.Linear(WIDTH, 2)

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        x = self.inner(batch["features"])
        for block in self.blocks:
            x = block(x) + x
        predicted = self.outer(x) * batch.get("scale", torch.ones(()))
        return {"loss": F.mse_loss(predicted, batch["targets"]), "predicted": predicted}


class NamedBlocks(nn.Module):
    """A ModuleDict whose keys forward looks up."""

    def __init__(self) -> None:
        super().__init__()
        self.names = ["first", "second", "third", "fourth"]
        self.stem = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleDict(
            {name: nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU()) for name in self.names}
        )
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Any]:
        x = self.stem(x)
        hidden = {}
        for name in self.names:
            x = x + self.blocks[name](x)
            hidden[name] = x.mean()
        logits = self.head(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Attention(nn.Module):
    """Causal attention with one projection for queries, keys and values."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).split(width, -1)
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=0.1 if self.training else 0.0)
        joined: Tensor = self.out(y.transpose(1, 2).reshape(rows, length, width))
        return joined


class Layer(nn.Module):
    """A transformer layer, norms first."""

    def __init__(self, *, causal: bool = True, mlp: nn.Module | None = None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(causal=causal)
        self.mlp = mlp or nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        changed: Tensor = x + self.mlp(self.norm2(x))
        return changed


class NanoGPT(nn.Module):
    """Modules in a ModuleDict, a tied head, and an output of (logits, loss)."""

    def __init__(self) -> None:
        super().__init__()
        words, layers = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Layer() for _ in range(LAYERS))
        parts = {"wte": words, "wpe": nn.Embedding(64, WIDTH), "drop": nn.Dropout(0.1), "h": layers}
        self.transformer = nn.ModuleDict({**parts, "ln_f": nn.LayerNorm(WIDTH)})
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)
        words.weight = self.lm_head.weight

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        _, length = idx.size()
        positions = torch.arange(0, length, dtype=torch.long, device=idx.device)
        parts: Any = self.transformer
        x = parts.drop(parts.wte(idx) + parts.wpe(positions))
        for block in parts.h:
            x = block(x)
        x = parts.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class HandmadeViT(nn.Module):
    """Patches, a class token and positions as parameters of the model itself."""

    def __init__(self, size: int = 16, patch: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, WIDTH) * 0.02)
        self.layers = nn.Sequential(*(Layer(causal=False) for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, images: Tensor, labels: Tensor) -> Output:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        logits = self.head(self.norm(self.layers(x))[:, 0])
        return Output(F.cross_entropy(logits, labels), logits)


class Experts(nn.Module):
    """Two of four experts for every token. How many tokens an expert gets depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, INNER), nn.SiLU(), nn.Linear(INNER, WIDTH)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, WIDTH)
        weights, chosen = self.router(flat).softmax(-1).topk(2, -1)
        result = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            tokens, place = torch.where(chosen == number)
            if len(tokens):
                result.index_add_(0, tokens, expert(flat[tokens]) * weights[tokens, place, None])
        return result.view_as(x)


class MixtureOfExperts(nn.Module):
    """A decoder whose every second layer has experts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(mlp=Experts() if number % 2 else None) for number in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class BatchNormNet(nn.Module):
    """A plain net with batch norm between blocks, on flat features."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(8 if not number else WIDTH, WIDTH) for number in range(LAYERS))
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        for linear, norm in zip(self.linears, self.norms, strict=True):
            x = F.leaky_relu(norm(linear(x)), 0.1)
        logits = self.head(x)
        return F.cross_entropy(logits, labels), logits


class TimedBlock(nn.Module):
    """A convolution that the time shifts and scales."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(WIDTH, 2 * width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(time)[:, :, None, None].chunk(2, 1)
        result: Tensor = x + self.conv(F.silu(self.norm(x) * (1 + scale) + shift))
        return result


class Diffusion(nn.Module):
    """Predicts the noise that it adds to images, at a random time that all blocks take."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_time = nn.Sequential(nn.Linear(16, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(TimedBlock(16) for _ in range(LAYERS))
        self.head = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, images: Tensor, time: Tensor) -> dict[str, Tensor]:
        noise = torch.randn_like(images)
        kept = torch.cos(time * math.pi / 2)[:, None, None, None]
        frequencies = torch.exp(torch.linspace(0, 4, 8))
        angles = time[:, None] * frequencies
        condition = self.embed_time(torch.cat([angles.sin(), angles.cos()], -1))
        x = self.stem(kept * images + (1 - kept**2).sqrt() * noise)
        for block in self.blocks:
            x = block(x, condition)
        predicted = self.head(x)
        return {"loss": F.mse_loss(predicted, noise), "predicted": predicted}


class SharedLayer(nn.Module):
    """One layer that runs four times, with another norm each time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layer = Layer()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(ids)
        for norm in self.norms:
            x = norm(self.layer(x))
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def _tokens() -> dict[str, Tensor]:
    return {"ids": words(), "labels": words(seed=9)}


def _images() -> Tensor:
    return numbers(3, 16, 16)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "nn.Transformer": (TorchTransformer, lambda: {"source": words(), "target": words(9, seed=9)}),
    "stacked LSTM and GRU": (Recurrent, lambda: (words(), classes())),
    "U-Net with skips": (UNet, lambda: (_images(), words(16, vocabulary=8)[:, :, None].expand(-1, -1, 16) % 3)),
    "ResNet": (ResNet, lambda: (_images(), classes())),
    "keyword arguments only": (OnlyKeywords, lambda: {"features": numbers(8), "targets": numbers(2, seed=5)}),
    "ModuleDict of blocks": (NamedBlocks, lambda: (numbers(8), classes())),
    "nanoGPT-like, (logits, loss)": (NanoGPT, lambda: {"idx": words(), "targets": words(seed=9)}),
    "ViT by hand": (HandmadeViT, lambda: (_images(), classes())),
    "mixture of experts by hand": (MixtureOfExperts, _tokens),
    "net with BatchNorm": (BatchNormNet, lambda: (numbers(8), classes())),
    "time-conditioned diffusion": (Diffusion, lambda: {"images": _images(), "time": numbers().sigmoid()}),
    "shared layer": (SharedLayer, _tokens),
}
"""The model and the batch of each kind."""


def make(name: str) -> tuple[nn.Module, Any]:
    """Make a model of this kind and a batch with its labels."""
    make_model, make_batch = MODELS[name]
    torch.manual_seed(0)
    return make_model().train(), make_batch()
