"""A training loop of your own: three lines of Penstock around plain torch.

torchrun --nproc-per-node 2 examples/torchrun_script.py plan.json

README.md shows how to make plan.json. Start one process for each device of the plan.
"""

import sys
from itertools import islice

import torch
import torch.distributed as dist
from gpt import loss, make_batches, make_model

import penstock

NUM_STEPS = 5


def main() -> None:
    """Train a few steps and print the losses on rank 0."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)  # every rank creates the same model
    model, inputs, _, _ = make_model()

    # 1. The pipeline. `inputs` is a sample: it is needed because the model is not an nn.Sequential.
    plan = penstock.load_plan(sys.argv[1])
    pipe = penstock.Pipeline(model, plan, loss, inputs=inputs)
    # 2. An optimizer over the parameters that this rank holds.
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-3)

    num_rows = plan.num_microbatches * plan.micro_batch_size
    for step, (batch, targets) in enumerate(islice(make_batches(num_rows), NUM_STEPS)):
        optimizer.zero_grad()
        # 3. Forward and backward of all micro-batches. Every rank passes the whole batch and gets the mean loss.
        value = pipe.step(batch, targets)
        pipe.clip_grad_norm(1.0)
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step}  loss {value.item():.6f}")

    pipe.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
