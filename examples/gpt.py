"""A small GPT in plain torch. `penstock profile` and `penstock train` call the functions below; see README.md."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

VOCABULARY = 64
LENGTH = 64
WIDTH = 192
NUM_LAYERS = 6
NUM_HEADS = 6
MICRO_BATCH_SIZE = 4
DROPOUT = 0.1


class Layer(nn.Module):
    """A transformer layer: causal attention, then an MLP, both with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.join = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        rows, length, _ = x.shape
        q, k, v = self.attention(self.norm1(x)).view(rows, length, 3, NUM_HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.join(attended.transpose(1, 2).reshape(rows, length, WIDTH)))
        return x + self.drop(self.narrow(gelu(self.wide(self.norm2(x)))))


class GPT(nn.Module):
    """Token ids in, logits of every next token out. The embedding and the head share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(NUM_LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the logits."""
        x = self.embed(ids) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def loss(output: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy over all tokens."""
    return cross_entropy(output.flatten(0, 1), targets.flatten())


def make_model() -> tuple[nn.Module, Tensor, Callable[..., Tensor], Tensor]:
    """Return the model, the inputs of one micro-batch, the loss and the targets."""
    inputs, targets = next(make_batches(MICRO_BATCH_SIZE))
    return GPT(), inputs, loss, targets


def make_batches(num_rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of a Markov chain: each token is followed by one of two fixed tokens, which the model learns."""
    generator = torch.Generator().manual_seed(1)
    followers = torch.randint(VOCABULARY, (VOCABULARY, 2), generator=generator)
    while True:
        ids = torch.empty(num_rows, LENGTH + 1, dtype=torch.int64)
        ids[:, 0] = torch.randint(VOCABULARY, (num_rows,), generator=generator)
        choices = torch.randint(2, (num_rows, LENGTH), generator=generator)
        for position in range(LENGTH):
            ids[:, position + 1] = followers[ids[:, position], choices[:, position]]
        yield ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def make_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer for the parameters that a rank holds."""
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
