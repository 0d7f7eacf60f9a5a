"""The options of a training run, which the command and every rank share."""

import os
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

import msgspec

from penstock.bundle import PlanBundle, ProfileSource, open_plan
from penstock.errors import InputError
from penstock.plan.pricing import price

DEFAULT_STEPS = 100
DEFAULT_TIMEOUT_S = 120.0
DEFAULT_STARTUP_S = 600.0
DEFAULT_CHECKPOINT_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class TrainOptions:
    """The options of `penstock train` that every rank needs. None: the default applies."""

    script: str
    plan: str
    profile: str | None = None
    cluster: str | None = None
    steps: int = DEFAULT_STEPS
    global_batch_size: int | None = None
    lr: float | None = None
    seed: int = 0
    timeout: float = DEFAULT_TIMEOUT_S
    startup_timeout: float | None = None
    checkpoint_timeout: float = DEFAULT_CHECKPOINT_TIMEOUT_S
    threads: int | None = None
    gradient_accumulation_steps: int = 1
    clip_grad_norm: float | None = None
    precision: str | None = None
    device: str | None = None
    any_kind: bool = False
    check_finite: bool = False
    checkpoint: str | None = None
    save_every: int | None = None
    async_save: bool = False
    on_save_error: str = "stop"

    @property
    def startup_s(self) -> float:
        """How long hosts and ranks wait at the start until all are there, in seconds."""
        return max(DEFAULT_STARTUP_S, self.timeout) if self.startup_timeout is None else self.startup_timeout

    @property
    def arguments(self) -> list[str]:
        """The options as arguments of a command line, without those that have their default."""
        arguments = [self.script, "--plan", self.plan]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("script", "plan") or value == item.default:
                continue
            name = f"--{item.name.replace('_', '-')}"
            arguments += [name] if value is True else [name, str(value)]
        return arguments

    def open(self) -> tuple["TrainOptions", PlanBundle]:
        """Open the plan for the global batch size of these options.

        Returns:
            The options with the global batch size filled in, and the plan with its profile and cluster.

        Raises:
            InputError: If options contradict each other or the plan.
        """
        profile = ProfileSource(self.profile) if self.profile is not None else None
        bundle = open_plan(self.plan, profile=profile, cluster=self.cluster, schedule=None, force=False)
        bundle = bundle.with_own_messages()
        if self.save_every is not None and self.checkpoint is None:
            raise InputError("--save-every requires --checkpoint", hint="Name a directory with --checkpoint.")
        if self.async_save and self.save_every is None:
            raise InputError("--async-save requires --save-every", hint="State how often to save with --save-every.")
        if self.on_save_error != "stop" and self.save_every is None:
            raise InputError(
                "--on-save-error requires --save-every", hint="The save after the last step must succeed in any case."
            )
        if self.checkpoint is not None:
            _check_writable(Path(self.checkpoint))
        if bundle.program is not None:
            raise InputError("training requires a plan, but this file contains a program", where=self.plan)
        plan = bundle.plan
        batch_size = self.global_batch_size or plan.num_microbatches * plan.micro_batch_size
        if batch_size < plan.num_microbatches:
            raise InputError(
                f"global batch size ({batch_size}) is smaller than the plan's number of micro-batches "
                f"({plan.num_microbatches})",
                where="--global-batch-size",
                hint=f"Use at least {plan.num_microbatches}, or plan with fewer micro-batches.",
            )
        micro_batch_size = -(-batch_size // plan.num_microbatches)
        if micro_batch_size != plan.micro_batch_size:
            plan = msgspec.structs.replace(plan, micro_batch_size=micro_batch_size)
            bundle = replace(bundle, plan=plan, costs=price(plan, bundle.profile, bundle.cluster))
        return replace(self, global_batch_size=batch_size), bundle


def parse_options(arguments: Sequence[str], parser: ArgumentParser) -> tuple[TrainOptions, Namespace]:
    """Parse what `TrainOptions.arguments` has written, and the other arguments of `parser`."""
    hints = get_type_hints(TrainOptions)
    parser.add_argument("script")
    for item in fields(TrainOptions):
        if item.name == "script":
            continue
        name = f"--{item.name.replace('_', '-')}"
        kind = next(kind for kind in (get_args(hints[item.name]) or (hints[item.name],)) if kind is not NoneType)
        if kind is bool:
            parser.add_argument(name, action="store_true")
        elif item.default is MISSING:
            parser.add_argument(name, type=kind, required=True)
        else:
            parser.add_argument(name, type=kind, default=item.default)
    parsed = parser.parse_args(arguments)
    return TrainOptions(**{item.name: getattr(parsed, item.name) for item in fields(TrainOptions)}), parsed


def _check_writable(folder: Path) -> None:
    """Refuse a checkpoint directory that cannot be written to, before any training."""
    if folder.exists() and not folder.is_dir():
        raise InputError("--checkpoint needs a directory, but this is a file", where=str(folder), hint="Name another.")
    existing = next(item for item in (folder, *folder.absolute().parents) if item.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise InputError(
            "checkpoints cannot be written here", where=str(folder), hint=f"{existing} is not a writable directory."
        )


def shell_command(arguments: list[str]) -> str:
    """The command as one line for a shell."""
    return shlex.join(arguments)
