"""Options that say how the model of a computed profile is trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, get_args

import click

from penstock.errors import InputError
from penstock.profile import PRECISIONS, Attention, Checkpointing, Precision, Recipe

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class RecipeOptions:
    """The options of a recipe that are given."""

    given: Mapping[str, Any]
    """Their values, by name."""

    @property
    def precision(self) -> str | None:
        """The precision, which measured models and training have too."""
        return self.given.get("precision")

    @property
    def without_precision(self) -> "RecipeOptions":
        """The other options, which are for computed profiles only."""
        return RecipeOptions({name: value for name, value in self.given.items() if name != "precision"})

    @property
    def recipe(self) -> Recipe | None:
        """The recipe; None if no option is given.

        Raises:
            InputError: The precision is one of training, and not of computed profiles.
        """
        if not self.given:
            return None
        if self.precision not in (None, *get_args(Precision)):
            raise InputError(
                f"a computed profile cannot have precision {self.precision}",
                where="--precision",
                hint=f"Use {', '.join(get_args(Precision))}, or measure a model: penstock profile script.py.",
            )
        fields = dict(self.given)
        is_fp32 = fields.pop("head_precision", None) == "fp32"
        return Recipe(**fields, fp32_head=is_fp32)


def recipe_options(verb: F) -> F:
    """Add --precision, --attention, --checkpointing, --tensor-parallel and --head-precision, together `recipe`."""
    names = ("precision", "attention", "checkpointing", "tensor_parallel", "head_precision")

    @wraps(verb)
    def wrapped(**options: Any) -> Any:
        found = {name: options.pop(name) for name in names}
        given = {name: value for name, value in found.items() if value is not None}
        return verb(recipe=RecipeOptions(given), **options)

    for option in (
        click.option(
            "--head-precision",
            type=click.Choice(("same", "fp32")),
            help="Precision of the head and its product in a computed profile [default: same].",
        ),
        click.option(
            "--tensor-parallel",
            type=click.IntRange(min=1),
            metavar="N",
            help="GPUs that share every layer in a computed profile; a device is such a group [default: 1].",
        ),
        click.option(
            "--checkpointing",
            type=click.Choice(get_args(Checkpointing)),
            help="Activation checkpointing inside the layers of a computed profile [default: none].",
        ),
        click.option(
            "--attention",
            type=click.Choice(get_args(Attention)),
            help="Attention kernels of a computed profile [default: fused].",
        ),
        click.option(
            "--precision",
            type=click.Choice(tuple(dict.fromkeys((*PRECISIONS, *get_args(Precision)))), case_sensitive=False),
            help=f"Precision. Computed profiles: {', '.join(get_args(Precision))} [default: bf16]. Measured models "
            f"and training: {', '.join(PRECISIONS)} [default: the model's own].",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
