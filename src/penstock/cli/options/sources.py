"""Where profiles and clusters come from: options, and the text by which a plan remembers them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from penstock import io
from penstock.bundle import Precision
from penstock.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


def profile_options(verb: F) -> F:
    """--kind, --micro-batch-size, --sequence, --precision."""
    return computed_options(
        click.option("-b", "--micro-batch-size", type=int, help="Rows of a micro-batch (PipeDream: those measured).")(
            verb
        )
    )


def computed_options(verb: F) -> F:
    """--kind, --sequence, --precision."""
    for option in (
        click.option(
            "--precision", type=click.Choice(get_args(Precision)), help="For computed profiles; bf16 if not given."
        ),
        click.option("--sequence", type=int, help="Tokens in a row, for computed profiles of transformers."),
        click.option("--kind", "kinds", multiple=True, help="Device kind of a computed profile; can be repeated."),
    ):
        verb = option(verb)
    return verb


def check_outputs(inputs: Iterable[str | None], outputs: Iterable[str | None]) -> None:
    """Refuse to write over what was read, two results into one file, or into a folder that is not there.

    Before the work, whose results would be lost.
    """
    taken = {Path(name).resolve(): "is read by this command" for name in inputs if name and Path(name).exists()}
    for name in outputs:
        if name is None:
            continue
        if not name:
            raise InputError("the name of a file to write is empty", hint="Name a file, or leave the option out.")
        path = Path(name).resolve()
        if path in taken:
            raise InputError(f"{name!r} {taken[path]}", hint="Name another file to write to.")
        io.check_folder(name)
        if not path.exists() or path.is_file():
            taken[path] = "is written twice by this command"


def refuse_unused(source: str | None, **options: object) -> None:
    """Options of a profile without a profile to apply them to are a mistake."""
    given = [name for name, value in options.items() if value not in (None, (), "")]
    if source is None and given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(f"{names}: there is no profile here to apply this to", hint="Name the profile as well.")
