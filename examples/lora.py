"""Train adapters of low rank (LoRA) on a frozen GPT.

penstock profile examples/lora.py:make_model -b 2,4 --threads 1 -o lora.json
penstock plan --profile lora.json --cluster examples/clusters/this-machine.toml -m 4 -o plan.json
torchrun --nproc-per-node 2 examples/lora.py plan.json

Only the adapters have gradients and optimizer state. The profile states this for every layer, so that the plan, its
memory and its transfers are those of this training.
"""

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from gpt import GPT, loss, make_batches
from gpt import make_model as make_gpt
from torch import Tensor, nn

import penstock

RANK = 4
NUM_STEPS = 5
NUM_ROWS = 16


class LoRA(nn.Module):
    """A frozen linear layer with a trained update of low rank, which is zero at first."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer and its update."""
        return self.base(x) + x @ self.down.T @ self.up.T


def make_model() -> tuple[GPT, Tensor, Callable[..., Tensor], Tensor]:
    """Return the model with adapters, sample inputs, the loss and targets."""
    model, inputs, compute_loss, targets = make_gpt()
    model.requires_grad_(False)
    for layer in model.layers:
        layer.attention = LoRA(layer.attention)
    return model, inputs, compute_loss, targets


def main() -> None:
    """Train the adapters with a plan."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs, _, _ = make_model()
    pipe = penstock.Pipeline(model, penstock.load_plan(sys.argv[1]), loss, inputs=inputs)
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-2)
    batches = make_batches(NUM_ROWS)
    for step in range(NUM_STEPS):
        batch, targets = next(batches)
        optimizer.zero_grad()
        value = pipe.step(batch, targets)
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step}  loss {value:.4f}")
    numbers = sum(item.numel() for item in pipe.named_parameters().values())
    print(f"rank {dist.get_rank()} trains {numbers:,} numbers")
    pipe.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
