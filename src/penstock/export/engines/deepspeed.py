"""DeepSpeed: 1F1B with one stage per pipeline rank, cut between any layers of a PipelineModule."""

import json
from collections import Counter
from collections.abc import Sequence

from penstock.export.limits import Limits
from penstock.export.stage_blocks import whole_blocks
from penstock.export.subject import Subject
from penstock.export.template_files import read_template
from penstock.export.types import Draft, Engine
from penstock.plan import MessageModel, Shape

LIMITS = Limits(
    shapes=frozenset({Shape.STRAIGHT}),
    schedule="1f1b",
    split_backward=False,
    replicas="equal",
    recompute="stage",
    ties="any",
    cuts="layers",
)

_RUN = """`partition.json` has the cuts, `ds_config.json` the batch sizes. DeepSpeed has no option for cuts, so
`pipeline_module.py` has a subclass of its PipelineModule:

```python
import deepspeed
from pipeline_module import PlannedPipelineModule, config

deepspeed.init_distributed()
module = PlannedPipelineModule(layers, loss_fn=loss_fn)
engine, *_ = deepspeed.initialize(model=module, model_parameters=module.parameters(), config=config(optimizer=...))
loss = engine.train_batch(data_iter)
```

`layers` is the model as a list of {counts} modules or LayerSpecs, in the order of `partition.json`. `data_iter` yields
micro-batches: (inputs, labels) with {rows} rows each. The topology is
PipeDataParallelTopology(num_pp={stages}, num_dp={replicas}).{ties}"""

_TIES = """

Layers that share parameters must be TiedLayerSpecs with the same key: {names}."""


def draft(subject: Subject) -> Draft:
    """The cuts, the configuration, and the subclass of PipelineModule that takes them."""
    plan, replicas = subject.plan, subject.grid.num_replicas
    partitions = _partitions(subject)
    ties = "; ".join(", ".join(subject.layer_names[unit] for unit in tie.units) for tie in subject.profile.ties)
    approximations = []
    if replicas > 1:
        approximations.append("Gradients of replicas are averaged in buckets after the last backward.")
    return Draft(
        files={
            "partition.json": _json(
                {
                    "replicas": replicas,
                    "recompute": [stage.recompute for stage in plan.stages],
                    "partitions": partitions,
                }
            ),
            "ds_config.json": _json(
                {
                    "train_batch_size": plan.num_microbatches * plan.micro_batch_size,
                    "train_micro_batch_size_per_gpu": subject.rows_per_replica,
                    "gradient_accumulation_steps": plan.num_microbatches,
                    "pipeline": {"use_reentrant": False},
                    "zero_optimization": {"stage": 0},
                }
            ),
            "pipeline_module.py": read_template("deepspeed_pipeline.py"),
        },
        run=_RUN.format(
            counts=" or ".join(str(len(item["layers"])) for item in partitions),  # type: ignore[arg-type]
            rows=subject.rows_per_replica,
            stages=plan.num_stages,
            replicas=replicas,
            ties=_TIES.format(names=ties) if ties else "",
        ),
        approximations=tuple(approximations),
    )


def _partitions(subject: Subject) -> list[dict[str, object]]:
    """The cuts in the layers of the profile, and in whole blocks if no block is cut."""
    starts = [stage.start for stage in subject.plan.stages]
    fine = list(range(subject.profile.num_units))
    coarse = whole_blocks(subject.roles)
    partitions = [_partition(subject, fine)]
    if max(coarse) + 1 < len(fine) and all(start == 0 or coarse[start] != coarse[start - 1] for start in starts):
        partitions.append(_partition(subject, coarse))
    return partitions


def _partition(subject: Subject, numbers: Sequence[int]) -> dict[str, object]:
    """The names, cuts and ties of a list of layers; `numbers` has the index in it of each layer of the profile."""
    names, parts = [""] * (numbers[-1] + 1), Counter(numbers)
    for unit, number in enumerate(numbers):
        role = subject.roles[unit]
        names[number] = subject.layer_names[unit] if parts[number] == 1 else f"{role.stack}{role.block}"
    return {
        "layers": names,
        "cuts": [*(numbers[stage.start] for stage in subject.plan.stages), len(names)],
        "ties": [sorted({numbers[unit] for unit in tie.units}) for tie in subject.profile.ties],
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"


MESSAGES = MessageModel(receive="blocking", send="rendezvous")
"""`p2p.send` and `p2p.recv` of `PipelineEngine` return when the message is there, one after the other."""

DEEPSPEED = Engine("deepspeed", "DeepSpeed", LIMITS, draft, messages=MESSAGES)
