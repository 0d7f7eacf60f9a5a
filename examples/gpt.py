"""A small GPT in plain torch, to profile, plan and train with Penstock: see README.md beside it."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

VOCABULARY = 64
LENGTH = 64
WIDTH = 192
NUM_LAYERS = 6
NUM_HEADS = 6
MICROBATCH_ROWS = 4
DROPOUT = 0.1


class Layer(nn.Module):
    """Attention to what came before, then a small network for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.join = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        """One layer further."""
        rows, length, _ = x.shape
        q, k, v = self.attention(self.norm1(x)).view(rows, length, 3, NUM_HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.join(seen.transpose(1, 2).reshape(rows, length, WIDTH)))
        return x + self.drop(self.narrow(gelu(self.wide(self.norm2(x)))))


class GPT(nn.Module):
    """Tokens and places in, a guess of every next token out; both ends share the table of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(NUM_LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        """From tokens to guesses."""
        x = self.embed(ids) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def loss(output: Tensor, targets: Tensor) -> Tensor:
    """The mean over all tokens."""
    return cross_entropy(output.flatten(0, 1), targets.flatten())


def make_model() -> tuple[nn.Module, Tensor, Callable[..., Tensor], Tensor]:
    """The model, and one micro-batch to measure it with."""
    inputs, targets = next(make_batches(MICROBATCH_ROWS))
    return GPT(), inputs, loss, targets


def make_batches(num_rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows from a Markov chain: after each token one of two others, always the same two. That can be learnt."""
    generator = torch.Generator().manual_seed(1)
    followers = torch.randint(VOCABULARY, (VOCABULARY, 2), generator=generator)
    while True:
        ids = torch.empty(num_rows, LENGTH + 1, dtype=torch.int64)
        ids[:, 0] = torch.randint(VOCABULARY, (num_rows,), generator=generator)
        choices = torch.randint(2, (num_rows, LENGTH), generator=generator)
        for place in range(LENGTH):
            ids[:, place + 1] = followers[ids[:, place], choices[:, place]]
        yield ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def make_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """For the parameters that a rank has."""
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
