"""Training options of `penstock train`, which it passes on to its ranks."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.launch import DEFAULT_STEPS, DEFAULT_TIMEOUT_S, TrainOptions
from penstock.profile import PRECISIONS

F = TypeVar("F", bound=Callable[..., Any])


def training_options(verb: F) -> F:
    """Add the training options; the command gets them as `options`."""
    names = [item.name for item in fields(TrainOptions)]

    @wraps(verb)
    def wrapped(**values: Any) -> Any:
        options = TrainOptions(**{name: values.pop(name) for name in names})
        return verb(options=options, **values)

    for option in (
        click.option(
            "--on-save-error",
            type=click.Choice(["stop", "continue"]),
            default="stop",
            help="What follows if a checkpoint of --save-every cannot be written [default: stop].",
        ),
        click.option(
            "--async-save",
            is_flag=True,
            help="Write the checkpoints of --save-every while training goes on, from a copy in host memory.",
        ),
        click.option(
            "--save-every",
            type=click.IntRange(1),
            help="Save a checkpoint every N steps, not only at the end.",
            metavar="N",
        ),
        click.option("--checkpoint", help="Save checkpoints to this directory, and resume from the latest one there."),
        click.option(
            "--check-finite", is_flag=True, help="Stop at the first value that is not finite, and name its layer."
        ),
        click.option("--any-kind", is_flag=True, help="Accept devices of other kinds than those of the plan."),
        click.option(
            "--device",
            help="Device of the ranks: cpu, a type such as cuda or xpu, or auto for an accelerator if there is one "
            "[default: that of the script's model; an accelerator if the plan is for one]. With cpu, a plan for GPUs "
            "may train on the CPU.",
        ),
        click.option(
            "--precision",
            type=click.Choice(tuple(PRECISIONS), case_sensitive=False),
            help="bf16 and fp16: parameters of this type, with master weights in float32. bf16-mixed and fp16-mixed: "
            "autocast. fp16 scales the loss [default: the model as the script makes it].",
        ),
        click.option(
            "--clip-grad-norm", type=click.FloatRange(min=0, min_open=True), help="Clip gradients to this norm."
        ),
        click.option(
            "--gradient-accumulation-steps",
            type=click.IntRange(1),
            default=1,
            help="Batches per optimizer step; their gradients are averaged [default: 1].",
        ),
        click.option("--threads", type=click.IntRange(1), help="Threads per rank [default: cores / ranks]."),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=DEFAULT_TIMEOUT_S,
            help="Seconds that a rank waits for another one [default: 120].",
        ),
        click.option(
            "--checkpoint-timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=1800.0,
            help="Seconds that ranks wait for each other while they save or load a checkpoint [default: 1800].",
        ),
        click.option(
            "--startup-timeout",
            type=click.FloatRange(min=0, min_open=True),
            help="Seconds until all hosts and ranks must have started [default: 600, or --timeout if that is longer].",
        ),
        click.option(
            "--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Seed of all random numbers [default: 0]."
        ),
        click.option(
            "--lr",
            type=click.FloatRange(min=0),
            help="Learning rate of AdamW, if the script has no make_optimizer [default: 3e-4].",
        ),
        click.option("--global-batch-size", type=click.IntRange(1), help="Rows per step [default: that of the plan]."),
        click.option(
            "--steps",
            type=click.IntRange(1),
            default=DEFAULT_STEPS,
            help=f"Optimizer steps [default: {DEFAULT_STEPS}].",
        ),
        click.option("--cluster", help="Use this cluster instead of the one that the plan names."),
        click.option("--profile", help="Use this profile instead of the one that the plan names."),
        click.option("--plan", required=True, help="The plan file."),
        click.argument("script"),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
