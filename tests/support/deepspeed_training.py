"""A rank of a DeepSpeed run with an exported folder: trains a small model, and writes its losses and parameters.

Usage: python deepspeed_training.py FOLDER OUTPUT ROWS
"""

import json
import sys
from pathlib import Path

import deepspeed
import torch
from torch import Tensor, nn

WIDTH, STEPS, MICRO_BATCHES, RATE = 12, 3, 4, 0.1


def make_layers() -> list[nn.Module]:
    """The same layers in every process."""
    torch.manual_seed(3)
    return [part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """The mean over rows."""
    return (output - target).square().mean()


def batches(rows: int) -> list[list[tuple[Tensor, Tensor]]]:
    """The micro-batches of every step."""
    generator = torch.Generator().manual_seed(1)
    return [
        [
            (torch.randn(rows, WIDTH, generator=generator), torch.randn(rows, WIDTH, generator=generator))
            for _ in range(MICRO_BATCHES)
        ]
        for _ in range(STEPS)
    ]


def main(folder: str, output: str, rows: int) -> None:
    """Train, and write what this rank has."""
    sys.path.insert(0, folder)
    from pipeline_module import PlannedPipelineModule, config  # type: ignore[import-not-found]

    deepspeed.init_distributed(dist_backend="gloo")
    module = PlannedPipelineModule(make_layers(), loss_fn=loss_fn)
    options = config(optimizer={"type": "SGD", "params": {"lr": RATE}})
    engine, *_ = deepspeed.initialize(model=module, model_parameters=list(module.parameters()), config=options)
    losses = [float(engine.train_batch(iter(step))) for step in batches(rows)]
    values = {name: value.tolist() for name, value in module.named_parameters()}
    found = {"losses": losses, "parameters": values, "interval": module.activation_checkpoint_interval}
    Path(output, f"{engine.global_rank}.json").write_text(json.dumps(found))
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
