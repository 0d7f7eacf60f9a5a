"""How a model is to be trained: the options that `penstock train` and each of its ranks have in common."""

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from penstock.cli.saved import Opened, open_plan
from penstock.cli.sources import ProfileSource
from penstock.errors import InputError
from penstock.plan.pricing import price

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_STEPS = 100
DEFAULT_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Training:
    """What was asked for. None: not given."""

    script: str
    plan: str
    profile: str | None = None
    cluster: str | None = None
    steps: int = DEFAULT_STEPS
    batch: int | None = None
    lr: float | None = None
    seed: int = 0
    timeout: float = DEFAULT_TIMEOUT_S
    threads: int | None = None
    accumulate: int = 1
    clip: float | None = None
    bf16: bool = False
    check_finite: bool = False
    checkpoint: str | None = None
    save_every: int | None = None

    @property
    def words(self) -> list[str]:
        """As they are written on a command line, without what is as it would be anyway."""
        found = [self.script, "--plan", self.plan]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("script", "plan") or value == item.default:
                continue
            name = f"--{item.name.replace('_', '-')}"
            found += [name] if value is True else [name, str(value)]
        return found

    def open(self) -> tuple["Training", Opened]:
        """The plan with its profile and cluster, for batches of the size that was asked for, and that size."""
        profile = ProfileSource(self.profile) if self.profile is not None else None
        opened = open_plan(self.plan, profile=profile, cluster=self.cluster, schedule=None, force=False)
        if self.save_every is not None and self.checkpoint is None:
            raise InputError("--save-every: where to?", hint="Name a folder with --checkpoint.")
        if self.checkpoint is not None:
            _check_folder(Path(self.checkpoint))
        if opened.program is not None:
            raise InputError("this is a program, and training takes a plan", where=self.plan)
        plan = opened.plan
        batch = self.batch or plan.num_microbatches * plan.rows
        if batch < plan.num_microbatches:
            raise InputError(
                f"a batch of {batch} rows is too small for the plan's {plan.num_microbatches} micro-batches",
                where="--batch",
                hint=f"Give at least {plan.num_microbatches} rows, or plan with fewer micro-batches.",
            )
        rows = -(-batch // plan.num_microbatches)
        if rows != plan.rows:
            plan = msgspec.structs.replace(plan, rows=rows)
            opened = replace(opened, plan=plan, costs=price(plan, opened.profile, opened.cluster))
        return replace(self, batch=batch), opened


def _check_folder(folder: Path) -> None:
    """Refuse, before anything is trained, a folder that nothing can be written into."""
    if folder.exists() and not folder.is_dir():
        raise InputError("checkpoints need a folder, and this is a file", where=str(folder), hint="Name another.")
    there = next(item for item in (folder, *folder.absolute().parents) if item.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise InputError("no checkpoint can be written here", where=str(folder), hint=f"{there} cannot be written to.")


def shown_command(words: list[str]) -> str:
    """A command as it can be pasted into a shell."""
    return shlex.join(words)


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
        click.option("--batch", type=click.IntRange(1), help="Rows of a batch; those of the plan if not given."),
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
