"""The options of a training run, which the command and every rank have in common."""

import os
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

import msgspec

from penstock.bundle import Opened, ProfileSource, open_plan
from penstock.errors import InputError
from penstock.plan.pricing import price

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
    global_batch_size: int | None = None
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
        batch = self.global_batch_size or plan.num_microbatches * plan.micro_batch_size
        if batch < plan.num_microbatches:
            raise InputError(
                f"a batch of {batch} rows is too small for the plan's {plan.num_microbatches} micro-batches",
                where="--global-batch-size",
                hint=f"Give at least {plan.num_microbatches} rows, or plan with fewer micro-batches.",
            )
        rows = -(-batch // plan.num_microbatches)
        if rows != plan.micro_batch_size:
            plan = msgspec.structs.replace(plan, micro_batch_size=rows)
            opened = replace(opened, plan=plan, costs=price(plan, opened.profile, opened.cluster))
        return replace(self, global_batch_size=batch), opened


def parse_options(words: Sequence[str], parser: ArgumentParser) -> tuple[Training, Namespace]:
    """The options that `Training.words` wrote, and whatever else the parser knows."""
    hints = get_type_hints(Training)
    parser.add_argument("script")
    for item in fields(Training):
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
    parsed = parser.parse_args(words)
    return Training(**{item.name: getattr(parsed, item.name) for item in fields(Training)}), parsed


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
