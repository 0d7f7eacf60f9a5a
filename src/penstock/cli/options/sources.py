"""Options for the sources of profiles and clusters, and checks of output files."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock import io
from penstock.cli.options.recipe import recipe_options
from penstock.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


def profile_options(verb: F) -> F:
    """Add --micro-batch-size, --untied and the options of computed profiles."""
    verb = click.option("--untied", is_flag=True, help="Give each layer its own copy of tied parameters.")(verb)
    return computed_options(
        click.option(
            "-b",
            "--micro-batch-size",
            type=int,
            help="Rows per micro-batch (PipeDream profile: the measured micro-batch size).",
        )(verb)
    )


def computed_options(verb: F) -> F:
    """Add --kind, --sequence, and the options of a recipe, which the command gets as `recipe`."""
    verb = recipe_options(verb)
    for option in (
        click.option("--sequence", type=int, help="Tokens per row, for computed profiles of transformers."),
        click.option("--kind", "kinds", multiple=True, help="Device kind of a computed profile; may be repeated."),
    ):
        verb = option(verb)
    return verb


def check_outputs(inputs: Iterable[str | None], outputs: Iterable[str | None]) -> None:
    """Check output files before the work whose results would be lost.

    Raises:
        InputError: If an output is also an input, is written twice, or its directory does not exist.
    """
    taken = {Path(name).resolve(): "is an input of this command" for name in inputs if name and Path(name).exists()}
    for name in outputs:
        if name is None:
            continue
        if not name:
            raise InputError("the name of an output file is empty", hint="Name a file, or leave the option out.")
        path = Path(name).resolve()
        if path in taken:
            raise InputError(f"{name!r} {taken[path]}", hint="Write to another file.")
        io.check_folder(name)
        if not path.exists() or path.is_file():
            taken[path] = "is written twice by this command"


def refuse_unused(source: str | None, **options: object) -> None:
    """Raise an error for options of a profile if no profile is named."""
    names = [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, (), "", False)]
    if source is None and names:
        raise InputError(f"{', '.join(names)} requires a profile", hint="Name the profile as well.")
