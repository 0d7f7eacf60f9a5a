"""The model of the self-test: a small transformer with dropout, and with tied weights at its ends."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

VOCABULARY, LENGTH, WIDTH, NUM_LAYERS, NUM_HEADS = 97, 16, 64, 6, 4
MICRO_BATCH_SIZE = 2


class Transformer(nn.Module):
    """Token ids in, logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(self.make_layer() for _ in range(NUM_LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def make_layer(self) -> nn.Module:
        """Make a layer."""
        return nn.TransformerEncoderLayer(WIDTH, NUM_HEADS, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the logits."""
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(x)
        return logits


def loss(output: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy over all tokens."""
    return cross_entropy(output.flatten(0, 1), targets.flatten())


def make_model() -> tuple[nn.Module, Tensor, Callable[..., Tensor], Tensor]:
    """Return the model, the inputs of one micro-batch, the loss and the targets."""
    inputs, targets = next(make_batches(MICRO_BATCH_SIZE))
    return Transformer(), inputs, loss, targets


def make_batches(num_rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of random tokens."""
    generator = torch.Generator().manual_seed(1)
    while True:
        ids = torch.randint(VOCABULARY, (num_rows, LENGTH + 1), generator=generator)
        yield ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
