"""FlagScale: 1F1B with unequal devices, and another number of replicas for every stage."""

import json
from collections.abc import Iterator
from itertools import groupby

from penstock.export.engines.megatron import MESSAGES
from penstock.export.limits import Limits, Obstacle
from penstock.export.stage_blocks import stage_blocks
from penstock.export.subject import Subject
from penstock.export.types import Draft, Engine
from penstock.plan import Shape

LIMITS = Limits(
    shapes=frozenset({Shape.STRAIGHT}),
    schedule="1f1b",
    split_backward=False,
    replicas="unequal",
    recompute="stage",
    ties="none",
    cuts="between",
    needs_blocks=True,
)

_RUN = """`hetero.yaml` has the parts of a FlagScale training configuration that the plan decides (of its sections
`system` and `model`). Copy them into the configuration of your model.

The meshes are, in the order of the stages, the runs of stages with equal replicas on one kind of device. FlagScale
gives the ranks of each kind to the meshes of that kind, in the order of the hosts in its hostfile: list the hosts in
the order of the table below, with these types: {types}. Set `hetero_current_device_type` to the type of each host."""

_CONFIG = """# The parts of a FlagScale training configuration that the plan decides.
system:
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: {stages}
  hetero:
    enable_hetero: True
    hetero_pipeline_layer_split: {split}
    # tensor, context, expert and data parallel size and number of stages of every mesh
    hetero_process_meshes: {meshes}
    hetero_device_types: {types}
    hetero_current_device_type: {first_type}
    standalone_embedding_stage: False
{recompute}model:
  num_layers: {num_layers}
  micro_batch_size: {size}
  global_batch_size: {whole}
  untie_embeddings_and_output_weights: True
"""


def draft(subject: Subject) -> Draft:
    """The meshes, the split of the layers, and the recomputation of every stage."""
    plan = subject.plan
    split = [len(stage.blocks) for stage in stage_blocks(subject)]
    meshes = _meshes(subject)
    types = [kind for kind, _, _ in meshes]
    config = _CONFIG.format(
        stages=plan.num_stages,
        split=json.dumps(split),
        meshes=json.dumps([size for _, replicas, stages in meshes for size in (1, 1, 1, replicas, stages)]),
        types=json.dumps(types),
        first_type=json.dumps(types[0]),
        recompute=_recompute(subject, split),
        num_layers=sum(split),
        size=plan.micro_batch_size // plan.stages[0].num_replicas,
        whole=plan.num_microbatches * plan.micro_batch_size,
    )
    approximations = []
    if len(set(_replicas(subject))) > 1:
        approximations.append("FlagScale decides which ranks of stages with unequal replicas exchange which rows.")
    if any(stage.recompute for stage in plan.stages):
        approximations.append("FlagScale recomputes blocks only: the embedding and the head keep their saved tensors.")
    return Draft(
        files={"hetero.yaml": config},
        run=_RUN.format(types=", ".join(dict.fromkeys(types))),
        approximations=tuple(approximations),
    )


def find_obstacles(subject: Subject) -> Iterator[Obstacle]:
    """What only FlagScale cannot say."""
    for number, kinds in enumerate(_kinds(subject)):
        if len(kinds) > 1:
            what = f"the replicas of stage {number} are of several kinds ({', '.join(sorted(kinds))})"
            yield Obstacle("kinds of a stage", what, "--no-replication")
            return


def _replicas(subject: Subject) -> list[int]:
    return [stage.num_replicas for stage in subject.plan.stages]


def _kinds(subject: Subject) -> list[set[str]]:
    cluster = subject.cluster
    return [
        {cluster.devices[cluster.index[replica.device]].kind for replica in stage.forward}
        for stage in subject.plan.stages
    ]


def _meshes(subject: Subject) -> list[tuple[str, int, int]]:
    """The kind, the replicas and the number of stages of every mesh."""
    stages = [(min(kinds), count) for kinds, count in zip(_kinds(subject), _replicas(subject), strict=True)]
    return [(kind, replicas, len(list(run))) for (kind, replicas), run in groupby(stages)]


def _recompute(subject: Subject, split: list[int]) -> str:
    stages, num = subject.plan.stages, subject.plan.num_microbatches
    if not any(stage.recompute for stage in stages):
        return ""
    lines = [
        "  recompute:",
        "    recompute_granularity: full",
        "    recompute_method: uniform",
        f"    recompute_num_layers: {max(split)}",
        "    # number of stages, number of micro-batches, value",
        "    recompute_granularity_per_stage_micro_batch:",
        *[f"      - [1, {num}, {int(stage.recompute)}]" for stage in stages],
        "    recompute_num_layers_per_stage_micro_batch:",
        *[f"      - [1, {num}, {count * stage.recompute}]" for stage, count in zip(stages, split, strict=True)],
    ]
    return "\n".join([*lines, ""])


FLAGSCALE = Engine("flagscale", "FlagScale", LIMITS, draft, messages=MESSAGES, find_obstacles=find_obstacles)
