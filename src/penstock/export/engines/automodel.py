"""NeMo Automodel: any order on a straight map, a loop, or a V of two, for models with Hugging Face's `model.layers`."""

import json
from collections.abc import Iterator

from penstock.export.limits import Limits, Obstacle
from penstock.export.module_names import model_names, rotary_modules, stage_modules
from penstock.export.schedule_csv import schedule_csv
from penstock.export.subject import Subject
from penstock.export.torch_schedules import MAPS, schedule_class, too_few_ranks
from penstock.export.types import Draft, Engine

TITLE = "NeMo Automodel"
BLOCKS = "model.layers."
LIMITS = Limits(
    shapes=MAPS,
    schedule=None,
    split_backward=True,
    replicas="equal",
    recompute="all",
    ties="none",
    cuts="whole",
    needs_blocks=True,
)

_RUN = """`recipe.yaml` has the parts of a recipe that the plan decides. Copy them into the recipe of your model, and
run it as always, in this folder (or with the path of `schedule.csv` in `pp_schedule_csv`):

    python -m nemo_automodel.recipes.llm.train_ft --config recipe.yaml

with NeMo Automodel 0.7."""

_RECIPE = """# The parts of a NeMo Automodel recipe that the plan decides.
step_scheduler:
  local_batch_size: {local}
  global_batch_size: {whole}
distributed:
  strategy: fsdp2
  dp_size: {replicas}
  tp_size: 1
  cp_size: 1
  pp_size: {ranks}
  activation_checkpointing: {recompute}
  pipeline:
    pp_schedule: {schedule}
    pp_schedule_csv: schedule.csv
    pp_microbatch_size: {size}
    scale_grads_in_schedule: false
    module_fqns_per_model_part:
"""


def draft(subject: Subject) -> Draft:
    """The parts of a recipe, and the schedule."""
    plan, grid = subject.plan, subject.grid
    size = subject.rows_per_replica
    recipe = _RECIPE.format(
        local=plan.num_microbatches * size,
        whole=plan.num_microbatches * plan.micro_batch_size,
        replicas=grid.num_replicas,
        ranks=grid.num_ranks,
        recompute="true" if plan.stages[0].recompute else "false",
        schedule=schedule_class(subject),
        size=size,
    )
    shared = rotary_modules(subject)
    for modules in stage_modules(subject, model_names(subject)):
        recipe += f"      - {json.dumps([*modules, *shared])}\n"
    approximations = ["torch keeps a receive buffer for every micro-batch, so it needs more memory than predicted."]
    if grid.num_replicas > 1:
        approximations.append(
            "Automodel shards the parameters of replicas (FSDP), and gathers them for every use: less memory and more "
            "transfers than predicted."
        )
    if plan.stages[0].recompute:
        approximations.append(
            "Automodel recomputes every block from its own input: it keeps the inputs of all blocks, not only those of "
            "the stages."
        )
    return Draft(
        files={"recipe.yaml": recipe, "schedule.csv": schedule_csv(subject)},
        run=_RUN,
        approximations=tuple(approximations),
    )


def find_obstacles(subject: Subject) -> Iterator[Obstacle]:
    """What only NeMo Automodel cannot say."""
    names = model_names(subject)
    stack = (
        names.block.removesuffix("{}") if names else next(role.stack for role in subject.roles if role.place == "block")
    )
    if stack != BLOCKS:
        what = f"{TITLE} divides models whose blocks are {BLOCKS}N; those of {subject.profile.name} are {stack}N"
        yield Obstacle("model", what, "another engine")
        return
    yield from too_few_ranks(subject, TITLE)
    num, ranks = subject.plan.num_microbatches, subject.grid.num_ranks
    if num < ranks:
        what = f"{num} micro-batches for {ranks} pipeline ranks; there must be at least as many"
        yield Obstacle("number of micro-batches", what, f"-m {ranks}")


AUTOMODEL = Engine("automodel", TITLE, LIMITS, draft, find_obstacles=find_obstacles)
