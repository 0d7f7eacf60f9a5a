"""Sources of profiles, and their text form in plan files."""

import shlex
from dataclasses import dataclass, replace
from typing import Literal, get_args

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.profile import Profile

Precision = Literal["bf16", "fp32"]


@dataclass(frozen=True)
class ProfileSource:
    """A file or built-in name, and the options of its profile."""

    source: str
    kinds: tuple[str, ...] = ()
    micro_batch_size: int | None = None
    sequence: int | None = None
    precision: str | None = None
    is_untied: bool = False
    """Whether to leave out the ties between layers."""

    def __post_init__(self) -> None:
        if self.precision not in (None, *get_args(Precision)):
            raise InputError(
                f"a computed profile cannot have precision {self.precision}",
                where="--precision",
                hint=f"Use {' or '.join(get_args(Precision))}, or measure a model: penstock profile script.py.",
            )

    def load(self) -> Profile:
        """Load the profile."""
        from penstock.profile import load_profile, untied

        profile = load_profile(
            self.source,
            kinds=self.kinds,
            micro_batch_size=self.micro_batch_size,
            sequence=self.sequence,
            precision=_precision(self.precision),
        )
        return untied(profile) if self.is_untied else profile

    def for_cluster(self, cluster: Cluster) -> "ProfileSource":
        """The same source for the cluster's device kinds, if the profile is computed and names no kind."""
        from penstock.profile import is_computed

        if self.kinds or not is_computed(self.source):
            return self
        return replace(self, kinds=known_kinds(cluster))

    @property
    def text(self) -> str:
        """The source with its options, as written after --profile."""
        words = [self.source]
        for kind in self.kinds:
            words += ["--kind", kind]
        if self.micro_batch_size is not None:
            words += ["--micro-batch-size", str(self.micro_batch_size)]
        if self.sequence is not None:
            words += ["--sequence", str(self.sequence)]
        if self.precision is not None:
            words += ["--precision", self.precision]
        if self.is_untied:
            words.append("--untied")
        return shlex.join(words)


def known_kinds(cluster: Cluster) -> tuple[str, ...]:
    """The device kinds of a cluster for which profiles can be computed."""
    from penstock.profile import find_kind

    kinds = dict.fromkeys(device.kind for device in cluster.devices)
    return tuple(kind for kind in kinds if find_kind(kind) is not None)


def parse_source(text: str) -> ProfileSource:
    """Parse a text that `ProfileSource.text` has written."""
    words = shlex.split(text)
    is_untied = words[-1] == "--untied" and len(words) > 1
    if is_untied:
        words.pop()
    options: dict[str, list[str]] = {}
    for name, value in zip(words[1::2], words[2::2], strict=True):
        options.setdefault(name, []).append(value)
    return ProfileSource(
        source=words[0],
        kinds=tuple(options.get("--kind", ())),
        micro_batch_size=int(options["--micro-batch-size"][0]) if "--micro-batch-size" in options else None,
        sequence=int(options["--sequence"][0]) if "--sequence" in options else None,
        precision=_precision(options["--precision"][0] if "--precision" in options else None),
        is_untied=is_untied,
    )


def _precision(text: str | None) -> Precision | None:
    if text not in (None, *get_args(Precision)):
        raise ValueError(text)
    return "fp32" if text == "fp32" else "bf16" if text == "bf16" else None
