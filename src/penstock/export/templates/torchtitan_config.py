"""A torchtitan configuration with the exported plan.

python -m torchtitan.train --module planned --config planned
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from torchtitan.distributed.activation_checkpoint import FullAC

BASE = "torchtitan.models.llama3.config_registry:llama3_8b"
"""The configuration of your model: MODULE:FUNCTION."""

FOLDER = Path(__file__).resolve().parent


def planned() -> Any:
    """The configuration of BASE with the plan."""
    module, _, function = BASE.partition(":")
    return apply_plan(getattr(import_module(module), function)())


def apply_plan(config: Any) -> Any:
    """Set the stages, the schedule and the batch sizes of the plan in a configuration, and return it."""
    plan = json.loads((FOLDER / "parallelism.json").read_text())
    parallelism = config.parallelism
    for name, value in plan["parallelism"].items():
        getattr(parallelism, name)  # a name that this torchtitan does not have is an error
        setattr(parallelism, name, value)
    parallelism.pipeline_parallel_schedule_csv = str(FOLDER / "schedule.csv")
    if hasattr(parallelism, "num_pp_microbatches"):  # newer than 0.3
        parallelism.num_pp_microbatches = plan["num_microbatches"]
    else:
        parallelism.pipeline_parallel_microbatch_size = plan["micro_batch_size"]
    config.training.local_batch_size = plan["num_microbatches"] * plan["micro_batch_size"]
    if hasattr(config.training, "disable_cuda_graphs"):
        config.training.disable_cuda_graphs = True  # torchtitan does not capture pipelines
    config.activation_checkpoint = FullAC.Config() if plan["recompute"] else None
    return config
