"""A script in the style of nanoGPT: the model takes ids and targets, and returns logits and its loss.

penstock profile examples/nanogpt.py -b 4 --threads 1 -o nanogpt.json
penstock plan --profile nanogpt.json --cluster examples/clusters/this-machine.toml -m 4 -o plan.json
penstock train examples/nanogpt.py --plan plan.json --steps 30

`make_model` and `make_batches` are all that Penstock needs beside the model. The inputs are a dict of the arguments of
`forward`, and the loss is the single number among its results.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

BLOCK_SIZE = 48
VOCABULARY = 65
WIDTH = 128
NUM_LAYERS = 6
NUM_HEADS = 4
MICRO_BATCH_SIZE = 4


class CausalSelfAttention(nn.Module):
    """Several heads of causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attend to the positions before."""
        q, k, v = (part.unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2) for part in self.c_attn(x).split(WIDTH, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """Attention and an MLP, both with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.attn = CausalSelfAttention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A GPT whose embedding and head share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCABULARY, WIDTH),
                "wpe": nn.Embedding(BLOCK_SIZE, WIDTH),
                "h": nn.ModuleList(Block() for _ in range(NUM_LAYERS)),
                "ln_f": nn.LayerNorm(WIDTH, bias=False),
            }
        )
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.lm_head.weight, std=0.02)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and the loss if there are targets. Targets of -1 are ignored."""
        positions = torch.arange(idx.shape[1], device=idx.device)
        x = self.transformer["wte"](idx) + self.transformer["wpe"](positions)
        for block in self.transformer["h"]:
            x = block(x)
        logits = self.lm_head(self.transformer["ln_f"](x))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        return logits, loss


def make_model() -> tuple[nn.Module, dict[str, Tensor]]:
    """Return the model and the inputs of one micro-batch."""
    return GPT(), next(make_batches(MICRO_BATCH_SIZE))


def make_batches(num_rows: int) -> Iterator[dict[str, Tensor]]:
    """Yield random pieces of a text, and the same pieces one character later."""
    line = "the quick brown fox jumps over the lazy dog and back again. "
    text = torch.tensor([ord(letter) % VOCABULARY for letter in line * 40])
    generator = torch.Generator().manual_seed(1)
    while True:
        starts = torch.randint(len(text) - BLOCK_SIZE - 1, (num_rows,), generator=generator).tolist()
        pieces = torch.stack([text[start : start + BLOCK_SIZE + 1] for start in starts])
        yield {"idx": pieces[:, :-1].contiguous(), "targets": pieces[:, 1:].contiguous()}
