"""One rank of the pipelines that the benchmark of the house starts: how long making one takes, and how long a step.

Run as a script with the source tree to measure on PYTHONPATH: `rank.py plan DIRECTORY` writes the plan, then
`rank.py run DIRECTORY STEPS RANK` is one rank, which makes the pipeline and runs steps, if any. It uses only what the
trees before and after the re-layout have in common.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import penstock

NUM_LAYERS = 24
WIDTH = 8
CLUSTER = "2 x cpu @ 1 GB/s"
NUM_MICROBATCHES = 64
WARM_UP_STEPS = 5


def model() -> nn.Sequential:
    """Layers so small that everything that takes time is the runtime."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(NUM_LAYERS)))


def mean_square(output: Tensor, targets: Tensor) -> Tensor:
    """The loss."""
    return (output - targets).square().mean()


def write_plan(directory: Path) -> None:
    """Equal layers on two processes, in the best order that the schedule `auto` finds."""
    api: Any = penstock
    size = "rows" if "rows" in api.Times.__struct_fields__ else "micro_batch_size"
    times = api.Times(kind="cpu", forward_s=1e-4, input_grad_s=1e-4, weight_grad_s=1e-4, **{size: 1})
    sizes = api.Sizes(cut_bytes=4 * WIDTH, saved_bytes=8 * WIDTH, **{size: 1})
    parameter_bytes = 4 * (WIDTH * WIDTH + WIDTH)
    units = tuple(
        api.Unit(name=f"{number}", parameter_bytes=parameter_bytes, sizes=(sizes,), times=(times,))
        for number in range(NUM_LAYERS)
    )
    profile = api.Profile(name="house", units=units, **{size: 1})
    api.save_profile(profile, directory / "profile.json")
    plan = api.plan(profile, api.load_cluster(CLUSTER), NUM_MICROBATCHES, planner="balanced", schedule="auto")
    api.save_plan(plan, directory / "plan.json")


def run_rank(directory: Path, num_steps: int, rank: int) -> None:
    """Write what was measured to DIRECTORY/RANK.json."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    profile: Any = penstock.load_profile(str(directory / "profile.json"))
    cluster = penstock.load_cluster(CLUSTER)
    dist.barrier()
    begun = time.perf_counter()
    plan = penstock.load_plan(directory / "plan.json")
    pipe = penstock.Pipeline(model(), plan, mean_square, profile=profile, cluster=cluster)
    seconds = {"start_s": time.perf_counter() - begun}
    if num_steps:
        rows = NUM_MICROBATCHES
        inputs, targets = torch.ones(rows, WIDTH), torch.zeros(rows, WIDTH)
        for _ in range(WARM_UP_STEPS):
            pipe.step(inputs, targets)
        took = []
        for _ in range(num_steps):
            dist.barrier()
            begun = time.perf_counter()
            pipe.step(inputs, targets)
            took.append(time.perf_counter() - begun)
        seconds["step_s"] = sorted(took)[len(took) // 4]
    (directory / f"{rank}.json").write_text(json.dumps(seconds))
    pipe.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "plan":
        write_plan(Path(sys.argv[2]))
    else:
        run_rank(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
