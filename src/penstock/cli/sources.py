"""Where profiles and clusters come from: options, and the text by which a plan remembers them."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import click

from penstock import files
from penstock.cluster.types import Cluster
from penstock.errors import InputError
from penstock.profile.types import Profile

F = TypeVar("F", bound=Callable[..., Any])

Precision = Literal["bf16", "fp32"]


@dataclass(frozen=True)
class ProfileSource:
    """A file or built-in name, and how its profile is to be made."""

    source: str
    kinds: tuple[str, ...] = ()
    rows: int | None = None
    sequence: int | None = None
    precision: Precision | None = None

    def load(self) -> Profile:
        """The profile."""
        from penstock.profile.load import load_profile

        return load_profile(
            self.source, kinds=self.kinds, rows=self.rows, sequence=self.sequence, precision=self.precision
        )

    def for_cluster(self, cluster: Cluster) -> "ProfileSource":
        """The same, for the cluster's kinds where the profile is computed and no kind was asked for."""
        from penstock.profile.load import is_computed

        if self.kinds or not is_computed(self.source):
            return self
        return replace(self, kinds=known_kinds(cluster))

    @property
    def text(self) -> str:
        """As it would be written behind --profile, options included."""
        words = [self.source]
        for kind in self.kinds:
            words += ["--kind", kind]
        if self.rows is not None:
            words += ["--rows", str(self.rows)]
        if self.sequence is not None:
            words += ["--sequence", str(self.sequence)]
        if self.precision is not None:
            words += ["--precision", self.precision]
        return shlex.join(words)


def known_kinds(cluster: Cluster) -> tuple[str, ...]:
    """The kinds of a cluster for which profiles can be computed."""
    from penstock.profile.kinds import find_kind

    kinds = dict.fromkeys(device.kind for device in cluster.devices)
    return tuple(kind for kind in kinds if find_kind(kind) is not None)


def profile_options(verb: F) -> F:
    """--kind, --rows, --sequence, --precision."""
    return computed_options(
        click.option("--rows", type=int, help="Rows of a micro-batch (PipeDream: those measured).")(verb)
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


def parse_source(text: str) -> ProfileSource:
    """The source of a text that `ProfileSource.text` wrote."""
    words = shlex.split(text)
    options: dict[str, list[str]] = {}
    for name, value in zip(words[1::2], words[2::2], strict=True):
        options.setdefault(name, []).append(value)
    return ProfileSource(
        source=words[0],
        kinds=tuple(options.get("--kind", ())),
        rows=int(options["--rows"][0]) if "--rows" in options else None,
        sequence=int(options["--sequence"][0]) if "--sequence" in options else None,
        precision=_precision(options["--precision"][0] if "--precision" in options else None),
    )


def _precision(text: str | None) -> Precision | None:
    if text not in (None, *get_args(Precision)):
        raise ValueError(text)
    return "fp32" if text == "fp32" else "bf16" if text == "bf16" else None


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
        files.check_folder(name)
        if not path.exists() or path.is_file():
            taken[path] = "is written twice by this command"


def refuse_unused(source: str | None, **options: object) -> None:
    """Options of a profile without a profile to apply them to are a mistake."""
    given = [name for name, value in options.items() if value not in (None, (), "")]
    if source is None and given:
        names = ", ".join(f"--{name}" for name in given)
        raise InputError(f"{names}: there is no profile here to apply this to", hint="Name the profile as well.")
