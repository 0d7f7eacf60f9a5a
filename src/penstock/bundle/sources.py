"""Sources of profiles, and their text form in plan files."""

import shlex
from dataclasses import dataclass, replace

import msgspec

from penstock.cluster import Cluster
from penstock.profile import Profile, Recipe

_RECIPE_OPTIONS = {
    "--attention": "attention",
    "--checkpointing": "checkpointing",
    "--tensor-parallel": "tensor_parallel",
}


@dataclass(frozen=True)
class ProfileSource:
    """A file or built-in name, and the options of its profile."""

    source: str
    kinds: tuple[str, ...] = ()
    micro_batch_size: int | None = None
    sequence: int | None = None
    recipe: Recipe | None = None
    """How the model is trained, for computed profiles. None: the default."""
    is_untied: bool = False
    """Whether to leave out the ties between layers."""

    def load(self) -> Profile:
        """Load the profile."""
        from penstock.profile import load_profile, untied

        profile = load_profile(
            self.source,
            kinds=self.kinds,
            micro_batch_size=self.micro_batch_size,
            sequence=self.sequence,
            recipe=self.recipe,
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
        if self.recipe is not None:
            words += recipe_words(self.recipe)
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
        recipe=_parse_recipe(options),
        is_untied=is_untied,
    )


def recipe_words(recipe: Recipe) -> list[str]:
    """The options of a recipe, as on the command line: its precision, and what is not the default.

    >>> recipe_words(Recipe(attention="eager", fp32_head=True))
    ['--precision', 'bf16', '--attention', 'eager', '--head-precision', 'fp32']
    """
    words = ["--precision", recipe.precision]
    default = Recipe()
    for option, name in _RECIPE_OPTIONS.items():
        value = getattr(recipe, name)
        if value != getattr(default, name):
            words += [option, str(value)]
    return [*words, "--head-precision", "fp32"] if recipe.fp32_head else words


def _parse_recipe(options: dict[str, list[str]]) -> Recipe | None:
    if "--precision" not in options:
        return None
    values = {name: options[option][0] for option, name in _RECIPE_OPTIONS.items() if option in options}
    values["precision"] = options["--precision"][0]
    is_fp32 = options.get("--head-precision") == ["fp32"]
    try:
        return msgspec.convert({**values, "fp32_head": is_fp32}, Recipe, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
