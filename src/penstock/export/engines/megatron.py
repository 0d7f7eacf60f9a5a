"""Megatron-Core: 1F1B, or interleaved 1F1B on a loop, with a layout string or a hybrid layer pattern."""

import shlex
from collections.abc import Iterator

from penstock.export.limits import Limits, Obstacle
from penstock.export.stage_blocks import SYMBOLS, StageBlocks, stage_blocks
from penstock.export.subject import Subject
from penstock.export.types import Draft, Engine
from penstock.plan import MessageModel, Shape
from penstock.profile import allowed_cuts, is_inside_block

LIMITS = Limits(
    shapes=frozenset({Shape.STRAIGHT, Shape.LOOP}),
    schedule="interleaved",
    split_backward=False,
    replicas="equal",
    recompute="all",
    ties="ends",
    cuts="whole",
    exported_cuts="layers",
    needs_blocks=True,
    part_rounds=False,
)

_RUN = """`megatron.sh` runs a program of Megatron-LM with the arguments of the plan in front of your own (model, data,
optimizer):

    sh megatron.sh python {program} --hidden-size ...

{model}

Leave out the older ways to divide layers, such as `--decoder-first-pipeline-num-layers` and
`--num-layers-per-virtual-pipeline-stage`: Megatron refuses them beside {what}. Ranks are numbered as Megatron numbers
them by default (data parallel inside, pipeline parallel outside; without `--use-tp-pp-dp-mapping`). `ranks.csv` is the
host order."""


def layout(stages: tuple[StageBlocks, ...]) -> str:
    """The argument of --pipeline-model-parallel-layout.

    >>> layout((StageBlocks(True, (0, 1), False), StageBlocks(False, tuple(range(2, 8)), True)))
    'Ett|t*6L'
    """
    return "|".join(
        f"{'E' if stage.has_embedding else ''}{_repeated('t', len(stage.blocks))}{'L' if stage.has_head else ''}"
        for stage in stages
    )


def hybrid_pattern(subject: Subject) -> str:
    """The argument of --hybrid-layer-pattern: a symbol for each part of a block, and | between stages."""
    stages = []
    for stage in subject.plan.stages:
        roles = subject.roles[stage.start : stage.stop]
        stages.append("".join(SYMBOLS[role.part] for role in roles if role.place == "block"))
    return "|".join(stages)


def draft(subject: Subject) -> Draft:
    """The arguments of the plan, as a script that starts a program with them."""
    stages = stage_blocks(subject)
    is_hybrid = not _cuts_whole_blocks(subject)
    words = _arguments(subject, stages, is_hybrid=is_hybrid)
    lines = [" ".join([name, *map(shlex.quote, values)]) for name, *values in words]
    script = "\n".join(
        [
            "#!/bin/sh",
            "# Runs a program of Megatron-LM with the arguments of the plan: sh megatron.sh PROGRAM [ARGUMENT ...]",
            'exec "$@" \\',
            " \\\n".join(f"    {line}" for line in lines),
            "",
        ]
    )
    model = (
        "The plan cuts blocks, so the model is a hybrid model without Mamba layers (a Megatron-LM whose "
        "`--hybrid-layer-pattern` has `|`; Megatron-Core 0.16 has none)."
        if is_hybrid
        else "The model is a GPT model of Megatron-Core, with `--num-layers` as in the plan."
    )
    return Draft(
        files={"megatron.sh": script},
        run=_RUN.format(
            program="pretrain_hybrid.py" if is_hybrid else "pretrain_gpt.py",
            model=model,
            what="a pattern with `|`" if is_hybrid else "a layout",
        ),
        approximations=_approximations(subject, stages, is_hybrid=is_hybrid),
    )


def find_obstacles(subject: Subject) -> Iterator[Obstacle]:
    """What only Megatron cannot say."""
    stages = subject.plan.stages
    if subject.grid.num_ranks == 1 and len(stages) > 1:
        yield Obstacle("map of stages to devices", "one pipeline rank has several stages", "--no-virtual-stages")
    if _cuts_whole_blocks(subject):
        return
    if any(is_inside_block(subject.roles, stage.start) for stage in stages):
        parts = {role.part for role in subject.roles if role.place == "block"}
        unknown = sorted(parts - set(SYMBOLS))
        if unknown:
            what = f"stages cut blocks, and a hybrid pattern has no symbol for their part {unknown[0]!r}"
            yield Obstacle("cuts inside blocks", what, "--whole-blocks")
            return
    # Neither a layout nor a pattern divides them; a pattern has no symbol for them either.
    outside = [role.place != "block" for role in subject.roles]
    without = [number for number, stage in enumerate(stages) if all(outside[stage.start : stage.stop])]
    if without:
        what = f"stage {without[0]} has no part of a block"
        yield Obstacle("cuts outside of blocks", what, "--whole-blocks")
    elif any(outside[stage.start] for stage in stages[1:]) or any(outside[stage.stop - 1] for stage in stages[:-1]):
        yield Obstacle(
            "cuts outside of blocks", "stages divide the layers before or behind the blocks", "--whole-blocks"
        )


def _cuts_whole_blocks(subject: Subject) -> bool:
    allowed = set(allowed_cuts(subject.roles, "whole"))
    return all(stage.start in allowed for stage in subject.plan.stages)


def _arguments(subject: Subject, stages: tuple[StageBlocks, ...], *, is_hybrid: bool) -> list[tuple[str, ...]]:
    plan, grid = subject.plan, subject.grid
    words: list[tuple[str, ...]] = [
        ("--tensor-model-parallel-size", "1"),
        ("--pipeline-model-parallel-size", str(grid.num_ranks)),
    ]
    if is_hybrid:
        pattern = hybrid_pattern(subject)
        words.append(("--spec", "megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec"))
        words.append(("--hybrid-layer-pattern", pattern))
    else:
        words.append(("--num-layers", str(sum(len(stage.blocks) for stage in stages))))
        words.append(("--pipeline-model-parallel-layout", layout(stages)))
    if grid.num_chunks > 1:
        words.append(("--microbatch-group-size-per-virtual-pipeline-stage", str(grid.num_ranks)))
    words += [
        ("--micro-batch-size", str(subject.rows_per_replica)),
        ("--global-batch-size", str(plan.num_microbatches * plan.micro_batch_size)),
    ]
    if not subject.profile.ties:
        words.append(("--untie-embeddings-and-output-weights",))
    if plan.stages[0].recompute:
        deepest = max(len(stage.blocks) for stage in stages)
        words += [
            ("--recompute-granularity", "full"),
            ("--recompute-method", "uniform"),
            ("--recompute-num-layers", str(max(1, deepest))),
        ]
    return words


def _approximations(subject: Subject, stages: tuple[StageBlocks, ...], *, is_hybrid: bool) -> tuple[str, ...]:
    found = []
    if subject.plan.stages[0].recompute:
        found.append("Megatron recomputes blocks only: the embedding and the head keep their saved tensors.")
    if not is_hybrid and len(stages) > 1 and stages[-1].has_head and not stages[-1].blocks:
        found.append("Megatron runs the final norm in the stage of the last block, the plan in the stage of the head.")
    if subject.grid.num_replicas > 1:
        found.append("Gradients are reduced in buckets; `--overlap-grad-reduce` hides a part that the plan prices.")
    return tuple(found)


def _repeated(symbol: str, number: int) -> str:
    return symbol * number if number < 5 else f"{symbol}*{number}"


MESSAGES = MessageModel(receive="blocking", send="rendezvous", together=True, overlaps_chunks=True)
"""1F1B exchanges in batches, such as `send_forward_recv_backward`, and waits for them. The interleaved schedule has
`overlap_p2p_comm`, on unless `--no-overlap-p2p-communication`."""

MEGATRON = Engine("megatron", "Megatron-Core", LIMITS, draft, messages=MESSAGES, find_obstacles=find_obstacles)
