"""A plan or program file on the command line, with options that replace what it names."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.bundle import Opened, Precision, ProfileSource, open_plan
from penstock.cli.options.sources import profile_options, refuse_unused

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Saved:
    """A plan or program file as it was asked for, and what to use with it instead of what it names."""

    path: str
    source: str | None
    cluster: str | None
    schedule: str | None
    force: bool
    kinds: tuple[str, ...]
    micro_batch_size: int | None
    sequence: int | None
    precision: Precision | None

    @property
    def inputs(self) -> tuple[str | None, ...]:
        """The files that are read."""
        return self.path, self.source, self.cluster

    def open(self) -> Opened:
        """Read it."""
        refuse_unused(
            self.source,
            kind=self.kinds,
            micro_batch_size=self.micro_batch_size,
            sequence=self.sequence,
            precision=self.precision,
        )
        profile = None
        if self.source:
            profile = ProfileSource(self.source, self.kinds, self.micro_batch_size, self.sequence, self.precision)
        return open_plan(self.path, profile=profile, cluster=self.cluster, schedule=self.schedule, force=self.force)


def saved_options(verb: F) -> F:
    """A plan or program file, and what to use with it instead of what it names; the verb gets them as `saved`."""
    names = [item.name for item in fields(Saved)]

    @wraps(verb)
    def wrapped(**options: Any) -> Any:
        saved = Saved(**{name: options.pop(name) for name in names})
        return verb(saved=saved, **options)

    for option in (
        profile_options,
        click.option("--force", is_flag=True, help="Go on with a profile or cluster that the plan was not made for."),
        click.option("--schedule", help="Another schedule than the plan's."),
        click.option("--cluster", help="Another cluster than the one that the file names."),
        click.option("--profile", "source", help="Another profile than the one that the file names."),
        click.argument("path"),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
