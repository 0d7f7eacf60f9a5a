"""torch.distributed.pipelining: any map of stages to ranks, and any order of the actions."""

from penstock.export.limits import Limits
from penstock.export.module_names import model_names, stage_modules
from penstock.export.pipeline_file import pipeline_json
from penstock.export.schedule_csv import schedule_csv
from penstock.export.subject import Subject
from penstock.export.template_files import read_template
from penstock.export.types import Draft, Engine

LIMITS = Limits(
    shapes=None,
    schedule=None,
    split_backward=True,
    replicas="equal",
    recompute="none",
    ties="none",
    cuts="blocks",
)

_RUN = """`schedule.csv` has a row for each pipeline rank, `pipeline.json` the modules of each stage. `load.py` builds
the stages and the schedule of a rank (torch 2.13, whose schedule runtime is a private class):

```python
from load import load_pipeline

pipeline = load_pipeline()
stages = pipeline.build_stages(model, sample)
schedule = pipeline.build_schedule(stages, loss_fn)
losses = []
schedule.step(inputs, target=targets, losses=losses)
pipeline.average_gradients(stages)
```

`inputs` and `targets` are the {rows} rows of an iteration that a replica takes: {num} micro-batches of {size}. Ranks
with the first stage pass the inputs, ranks with the last one the targets; the others call `schedule.step()`."""


def draft(subject: Subject) -> Draft:
    """The schedule as CSV, the modules of every stage, and a loader."""
    num, size = subject.plan.num_microbatches, subject.rows_per_replica
    modules = stage_modules(subject, model_names(subject))
    approximations = ["torch keeps a receive buffer for every micro-batch, so it needs more memory than predicted."]
    if subject.grid.num_replicas > 1:
        approximations.append("Gradients of replicas are averaged after the last backward, one parameter at a time.")
    return Draft(
        files={
            "schedule.csv": schedule_csv(subject),
            "pipeline.json": pipeline_json(subject, "torch", modules),
            "load.py": read_template("torch_pipeline.py"),
        },
        run=_RUN.format(rows=num * size, num=num, size=size),
        approximations=tuple(approximations),
    )


TORCH = Engine("torch", "torch.distributed.pipelining", LIMITS, draft)
