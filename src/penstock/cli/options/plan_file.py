"""A plan or program file on the command line, with options that replace the sources that it names."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.bundle import PlanBundle, ProfileSource, open_plan
from penstock.cli.options.recipe import RecipeOptions
from penstock.cli.options.sources import profile_options, refuse_unused

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class PlanFile:
    """A plan or program file, and what to use instead of the profile, cluster and schedule that it names."""

    path: str
    source: str | None
    cluster: str | None
    schedule: str | None
    force: bool
    kinds: tuple[str, ...]
    micro_batch_size: int | None
    sequence: int | None
    recipe: RecipeOptions
    untied: bool

    @property
    def inputs(self) -> tuple[str | None, ...]:
        """The files that the command reads."""
        return self.path, self.source, self.cluster

    def open(self) -> PlanBundle:
        """Read the file, its profile and its cluster."""
        refuse_unused(
            self.source,
            kind=self.kinds,
            micro_batch_size=self.micro_batch_size,
            sequence=self.sequence,
            untied=self.untied,
            **self.recipe.given,
        )
        profile = None
        if self.source:
            profile = ProfileSource(
                self.source, self.kinds, self.micro_batch_size, self.sequence, self.recipe.recipe, self.untied
            )
        return open_plan(self.path, profile=profile, cluster=self.cluster, schedule=self.schedule, force=self.force)


def plan_file_options(verb: F) -> F:
    """Add PATH and the options that replace what the file names; the command gets them as `plan_file`."""
    names = [item.name for item in fields(PlanFile)]

    @wraps(verb)
    def wrapped(**options: Any) -> Any:
        plan_file = PlanFile(**{name: options.pop(name) for name in names})
        return verb(plan_file=plan_file, **options)

    for option in (
        profile_options,
        click.option("--force", is_flag=True, help="Accept a profile or cluster that differs from the plan's."),
        click.option("--schedule", help="Use this schedule instead of the plan's."),
        click.option("--cluster", help="Use this cluster instead of the one that the file names."),
        click.option("--profile", "source", help="Use this profile instead of the one that the file names."),
        click.argument("path"),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
