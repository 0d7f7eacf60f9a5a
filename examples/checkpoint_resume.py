"""Save a checkpoint under one plan, and resume from it under another one.

torchrun --nproc-per-node 2 examples/checkpoint_resume.py first.json second.json checkpoints

README.md shows how to make two plans of the same model. The second half of the training runs twice: once without an
interruption under the first plan, and once from the checkpoint under the second. The losses are the same.
"""

import sys
from itertools import islice

import torch
import torch.distributed as dist
from gpt import loss, make_batches, make_model

import penstock

NUM_STEPS = 6
SAVE_AT = 3
NUM_ROWS = 16


def make_pipeline(plan: penstock.Plan) -> tuple[penstock.Pipeline, torch.optim.Optimizer]:
    """Create the model, the pipeline and the optimizer, as a new process would."""
    torch.manual_seed(0)
    model, inputs, _, _ = make_model()
    pipe = penstock.Pipeline(model, plan, loss, inputs=inputs)
    return pipe, pipe.optimizer(torch.optim.AdamW, lr=1e-3)


def train(pipe: penstock.Pipeline, optimizer: torch.optim.Optimizer, begin: int, end: int) -> list[float]:
    """Train the steps from `begin` up to `end` and return their losses."""
    losses = []
    for batch, targets in islice(make_batches(NUM_ROWS), begin, end):
        optimizer.zero_grad()
        losses.append(pipe.step(batch, targets).item())
        optimizer.step()
    return losses


def main() -> None:
    """Train, save, resume, and compare the losses."""
    first, second, folder = sys.argv[1:]
    dist.init_process_group("gloo")
    torch.set_num_threads(1)

    pipe, optimizer = make_pipeline(penstock.load_plan(first))
    train(pipe, optimizer, 0, SAVE_AT)
    pipe.save(folder, extra={"note": "saved under the first plan"})  # all ranks, after optimizer.step()
    expected = train(pipe, optimizer, SAVE_AT, NUM_STEPS)
    pipe.close()

    pipe, optimizer = make_pipeline(penstock.load_plan(second))
    loaded = pipe.load(folder)  # all ranks, after the optimizer is created
    resumed = train(pipe, optimizer, loaded.step, NUM_STEPS)
    pipe.close()

    if dist.get_rank() == 0:
        print(f"resumed at step {loaded.step}, {loaded.extra['note']}")
        for step, (one, other) in enumerate(zip(expected, resumed, strict=True), start=loaded.step):
            print(f"step {step}  uninterrupted {one:.6f}  resumed {other:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
