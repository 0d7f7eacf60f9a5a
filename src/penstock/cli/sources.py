"""Where profiles and clusters come from: options, and the text by which a plan remembers them."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import click

from penstock.cluster.types import Cluster
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
    precision: Precision = "bf16"

    def load(self, default_kinds: tuple[str, ...] = ()) -> Profile:
        """The profile; computed ones are for `default_kinds` if no kind was asked for."""
        from penstock.profile.load import load_profile

        return load_profile(
            self.source,
            kinds=self.kinds,
            default_kinds=default_kinds,
            rows=self.rows,
            sequence=self.sequence,
            precision=self.precision,
        )

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
        if self.precision != "bf16":
            words += ["--precision", self.precision]
        return shlex.join(words)


def known_kinds(cluster: Cluster) -> tuple[str, ...]:
    """The kinds of a cluster for which profiles can be computed."""
    from penstock.profile.kinds import find_kind

    kinds = dict.fromkeys(device.kind for device in cluster.devices)
    return tuple(kind for kind in kinds if find_kind(kind) is not None)


def profile_options(verb: F) -> F:
    """--kind, --rows, --sequence, --precision."""
    for option in (
        click.option(
            "--precision", type=click.Choice(get_args(Precision)), default="bf16", help="For computed profiles."
        ),
        click.option("--sequence", type=int, help="Tokens in a row, for computed profiles of transformers."),
        click.option("--rows", type=int, help="Rows of a micro-batch."),
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
        precision="fp32" if options.get("--precision") == ["fp32"] else "bf16",
    )
