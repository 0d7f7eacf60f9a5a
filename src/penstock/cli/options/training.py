"""How a model is to be trained: the options that `penstock train` and each of its ranks have in common."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.launch import DEFAULT_STEPS, DEFAULT_TIMEOUT_S, Training

F = TypeVar("F", bound=Callable[..., Any])


def training_options(verb: F) -> F:
    """The options; the verb gets them as `asked`."""
    names = [item.name for item in fields(Training)]

    @wraps(verb)
    def wrapped(**options: Any) -> Any:
        asked = Training(**{name: options.pop(name) for name in names})
        return verb(asked=asked, **options)

    for option in (
        click.option(
            "--save-every", type=click.IntRange(1), help="Save after every so many steps, not at the end alone."
        ),
        click.option(
            "--checkpoint", help="Save to this folder, and go on from the last checkpoint in it, if there is one."
        ),
        click.option("--check-finite", is_flag=True, help="Stop where a number first is not finite, and say where."),
        click.option("--bf16", is_flag=True, help="Compute the forward under autocast to bfloat16."),
        click.option("--clip", type=click.FloatRange(min=0, min_open=True), help="Clip gradients to this norm."),
        click.option(
            "--accumulate",
            type=click.IntRange(1),
            default=1,
            help="Batches whose gradients are averaged for one step of the optimizer.",
        ),
        click.option("--threads", type=click.IntRange(1), help="Threads of a rank; cores over ranks if not given."),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=DEFAULT_TIMEOUT_S,
            help="Seconds after which a rank gives up waiting for another; 120 if not given.",
        ),
        click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Of all random numbers; 0."),
        click.option("--lr", type=click.FloatRange(min=0), help="Of AdamW, where the script makes no optimizer; 3e-4."),
        click.option(
            "--global-batch-size", type=click.IntRange(1), help="Rows of a batch; those of the plan if not given."
        ),
        click.option(
            "--steps", type=click.IntRange(1), default=DEFAULT_STEPS, help=f"Optimizer steps; {DEFAULT_STEPS}."
        ),
        click.option("--cluster", help="Another cluster than the one that the plan names."),
        click.option("--profile", help="Another profile than the one that the plan names."),
        click.option("--plan", required=True, help="The plan file."),
        click.argument("script"),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
