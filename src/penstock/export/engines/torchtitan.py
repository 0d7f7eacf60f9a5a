"""torchtitan: any order on a straight map, a loop, or a V of two; a Python function returns the configuration."""

import json
from collections.abc import Iterator

from penstock.export.limits import Limits, Obstacle
from penstock.export.module_names import TORCHTITAN as NAMES
from penstock.export.module_names import stage_modules
from penstock.export.schedule_csv import schedule_csv
from penstock.export.subject import Subject
from penstock.export.template_files import read_template
from penstock.export.torch_schedules import MAPS, schedule_class, too_few_ranks
from penstock.export.types import Draft, Engine

TITLE = "torchtitan"
LIMITS = Limits(
    shapes=MAPS,
    schedule=None,
    split_backward=False,
    replicas="equal",
    recompute="all",
    ties="none",
    cuts="whole",
    needs_blocks=True,
)

_RUN = """`planned.py` has the configuration function `planned`: that of your model (set `BASE` in it), with the fields
of `parallelism.json` and the schedule of `schedule.csv`. Put this folder on PYTHONPATH, and run

    python -m torchtitan.train --module planned --config planned

for every rank, with torchtitan 0.3. `planned.apply_plan(config)` does the same in a configuration function of your own.
Each of {replicas} takes {num} micro-batches of {size}: `training.global_batch_size` must stay unset or be {batch}."""


def draft(subject: Subject) -> Draft:
    """The fields of the configuration, the function that sets them, and the schedule."""
    plan, grid = subject.plan, subject.grid
    num, size = plan.num_microbatches, subject.rows_per_replica
    is_recomputed = plan.stages[0].recompute
    fields = {
        "parallelism": {
            "pipeline_parallel_degree": grid.num_ranks,
            "data_parallel_replicate_degree": grid.num_replicas,
            "data_parallel_shard_degree": 1,
            "tensor_parallel_degree": 1,
            "context_parallel_degree": 1,
            "pipeline_parallel_schedule": schedule_class(subject),
            "module_fqns_per_model_part": stage_modules(subject, NAMES),
        },
        "micro_batch_size": size,
        "num_microbatches": num,
        "recompute": is_recomputed,
    }
    approximations = ["torch keeps a receive buffer for every micro-batch, so it needs more memory than predicted."]
    if is_recomputed:
        approximations.append(
            "torchtitan recomputes every block from its own input: it keeps the inputs of all blocks, not only those "
            "of the stages, and the saved tensors of the embedding and the head."
        )
    return Draft(
        files={
            "planned.py": read_template("torchtitan_config.py"),
            "parallelism.json": json.dumps(fields, indent=1) + "\n",
            "schedule.csv": schedule_csv(subject),
        },
        run=_RUN.format(
            batch=num * plan.micro_batch_size,
            num=num,
            size=f"{size} row{'s' * (size > 1)}",
            replicas=f"{grid.num_replicas} replicas" if grid.num_replicas > 1 else "one replica",
        ),
        approximations=tuple(approximations),
    )


def find_obstacles(subject: Subject) -> Iterator[Obstacle]:
    """What only torchtitan cannot say."""
    yield from too_few_ranks(subject, TITLE)


TORCHTITAN = Engine("torchtitan", TITLE, LIMITS, draft, find_obstacles=find_obstacles)
